"""predict_training: the CUDA memory of a training step that exists in Python, without running it.

Also what a training step of the user's own is, and the copy of it that is traced.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.own_step.apart import apart
from swinmr_profiling.profiler.prediction.own_step_trace import trace_step, without_data
from swinmr_profiling.profiler.prediction.predict import memory_setting
from swinmr_profiling.profiler.prediction.settings import ALIGNED_BATCHES, UNTESTED_RULES, TrainingSetting
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.prediction.trace_family import own_step_family
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.prediction_intervals import shares_of
from swinmr_profiling.training.step.own_step import OwnStepError, TrainingStep, resized, trained_bytes

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
MEAN_OF_OUTPUT = "mean of the output (no loss was given)"
AUTOCAST: dict[Precision, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
ASSUMPTIONS = (
    "one process on one GPU, PyTorch's default allocator, no other program on the card",
    "the batch before is gone when the next one is moved to the card",
    "attention takes flash or memory-efficient kernels, as PyTorch does from compute capability 8.0 on",
    "validation is not in it",
)


class ModuleStep:
    """The plain step of one network: forward, loss, backward, optimizer step, gradients set to None."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: MakeOptimizer,
        loss: Callable[..., Tensor] | None,
        autocast_dtype: torch.dtype | None,
    ) -> None:
        """loss: called with the output and the batch's targets."""
        self.module, self.make_optimizer, self.loss = module, optimizer, loss
        self.autocast_dtype = autocast_dtype

    def setup(self, device: torch.device) -> None:
        self.module.train()
        self.optimizer = self.make_optimizer(p for p in self.module.parameters() if p.requires_grad)

    def step(self, batch: tuple[Sequence[Any], Mapping[str, Any], Sequence[Any]]) -> None:
        inputs, keywords, targets = batch
        with torch.autocast("cuda", self.autocast_dtype, enabled=self.autocast_dtype is not None):
            output = self.module(*inputs, **keywords)
            loss = _mean(output) if self.loss is None else self.loss(output, *targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class CallableStep:
    """A function ``step(batch)`` whose networks and optimizers exist already, such as a method of a trainer."""

    def __init__(self, step: Callable[[Any], object]) -> None:
        self.call = step

    def setup(self, device: torch.device) -> None:
        """Nothing: what it needs is there, and was copied with it."""

    def step(self, batch: Any) -> object:
        return self.call(batch)


def _mean(output: Any) -> Tensor:
    tensors = [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.requires_grad]
    if not tensors:
        raise OwnStepError("no output needs a gradient: give a loss, or parameters that train")
    return torch.stack([t.abs().mean() if t.is_complex() else t.float().mean() for t in tensors]).sum()


def on_meta(step: TrainingStep | Callable[[Any], object]) -> TrainingStep:
    """A copy whose tensors have no data, with all that it holds: networks, optimizers, what its function closes over.

    Raises OwnStepError for what cannot be copied.
    """
    found: object = step
    if isinstance(step, type):
        raise OwnStepError(f"{step.__name__} is a class: give an instance of it")
    if not isinstance(step, TrainingStep):
        _refuse_globals(step)
        found = CallableStep(_Opened(step) if inspect.isfunction(step) and step.__closure__ else step)
    # One copy of everything: an optimizer's parameters are those of the copied network.
    return cast(TrainingStep, without_data(found))


class _Opened:
    """A function and the cells that it closes over, where a copy finds them."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.closed_over = [cell.cell_contents for cell in function.__closure__]

    def __call__(self, batch: Any) -> object:
        cells = tuple(map(CellType, self.closed_over))
        code, names = self.function.__code__, self.function.__globals__
        made = type(self.function)(code, names, self.function.__name__, self.function.__defaults__, cells)
        return made(batch)


def _refuse_globals(step: object) -> None:
    """A function's global networks would be trained themselves: they are in no copy."""
    if not inspect.isfunction(step):
        return
    for name in step.__code__.co_names:
        value = step.__globals__.get(name)
        if isinstance(value, (nn.Module, torch.optim.Optimizer)):
            raise OwnStepError(
                f"{step.__name__} uses the global {name}, a {type(value).__name__}, which cannot be copied with it: "
                "make the step a class with setup(device) and step(batch), or a function inside a function"
            )


@apart()
def predict_training(
    module_or_step: nn.Module | TrainingStep | Callable[[Any], object],
    inputs: Any = None,
    *,
    targets: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    optimizer: MakeOptimizer = torch.optim.AdamW,
    loss: Callable[..., Tensor] | None = None,
    precision: Precision = "fp32",
    batch_sizes: Sequence[int] = (1,),
    assume: Mapping[str, Any] | None = None,
) -> MemoryModel:
    """The memory that a training step takes on a CUDA GPU, for any batch size; nothing runs, and no GPU is needed.

    Args:
        module_or_step: a network, or a step of your own: an object with ``setup(device)`` and ``step(batch)``, or a
            function ``step(batch)`` whose networks and optimizers it closes over (a trainer's method). It is copied,
            and left as it is.
        inputs: of a network: the tensor, or the tuple of arguments, of one batch. Of a step: an example of its batch,
            or a function that makes one of a given size; nothing where it has a method ``batch(size)``. Tensors whose
            first axis is as long as that of the first one are those that grow with the batch.
        targets: of a network: what the loss takes beside the output.
        keywords: of a network: keyword arguments of the forward.
        optimizer: of a network: called with its trainable parameters, for example
            ``partial(torch.optim.SGD, momentum=0.9)``.
        loss: of a network: ``loss(output, *targets)``. None: the mean of the output.
        precision: of a network: autocast's ("fp32" is none).
        batch_sizes: that must be in the table.
        assume: "file.py:12" -> the value that this line of yours gets where it asks for a tensor's value.

    Returns:
        the memory model of a profile: ``config_setting.sizes["4"].allocated_bytes`` and its like, in bytes without the
        CUDA context and cuBLAS's workspaces, which `recommend` adds. Its interval stands in ``interval_shares``.

    Raises:
        OwnStepError: the step raises, or asks for a value; with the line of your code.

    Example:
        >>> model = torch.nn.Linear(8, 4)
        >>> predict_training(model, torch.zeros(2, 8)).config_setting.sizes["1"].live_bytes > 0
        True
    """
    if precision not in AUTOCAST:
        raise OwnStepError(
            f'precision "{precision}" is of the weights: hand over a network in bf16, with precision "fp32"'
        )
    step: TrainingStep
    if isinstance(module_or_step, nn.Module):
        copied, (given, extra, beside) = copy_to(
            module_or_step, (_as_arguments(inputs), dict(keywords or {}), tuple(targets))
        )
        step, example = ModuleStep(copied, optimizer, loss, AUTOCAST[precision]), (given, extra, beside)
        label = MEAN_OF_OUTPUT if loss is None else getattr(loss, "__name__", type(loss).__name__)
        made_by = _name(optimizer)
    else:
        if targets or keywords or loss is not None:
            raise OwnStepError(
                "targets, keywords and loss belong to a network: a step of your own has its own"
            )
        step, example = on_meta(module_or_step), inputs
        label = made_by = "the step's own"

    def trace(batch_size: int) -> Trace:
        # Each batch size begins with networks that have no gradients and optimizers without a state.
        fresh: TrainingStep
        if isinstance(step, ModuleStep):
            fresh = ModuleStep(copy_to(step.module, ())[0], optimizer, loss, AUTOCAST[precision])
        else:
            fresh = on_meta(step)
        return trace_step(fresh, example, batch_size, assume or {})

    family, one_sample = own_step_family(trace)
    setting = memory_setting(
        family,
        TrainingSetting(precision, "none", None, is_config=True),
        batch_sizes,
        fingerprint=_fingerprint([family.direct(batch) for batch in ALIGNED_BATCHES]),
        trained_bytes=trained_bytes(step),
        validated_shape=None,
        remarks=one_sample,
    )
    return MemoryModel(
        source="predicted",
        memory_fingerprint=setting.memory_fingerprint,
        torch_version=torch.__version__,
        loss=label,
        optimizer=made_by,
        ema=False,
        accumulate=1,
        settings=[setting],
        inference=None,
        interval_shares=shares_of(setting),
        assumptions=[
            *ASSUMPTIONS,
            *setting.assumptions,
        ],
        untested_rules=list(UNTESTED_RULES),
    )


def _as_arguments(inputs: Any) -> tuple[Any, ...]:
    if inputs is None:
        raise OwnStepError("inputs: a network needs an example of one batch")
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    resized(arguments, 1)  # refuses what has no batch axis
    return arguments


def _name(make: object) -> str:
    made = getattr(make, "func", make)
    return str(getattr(made, "__name__", type(made).__name__)).lower()


def _fingerprint(traces: Sequence[Trace]) -> str:
    """SHA-256 of the allocations: two steps with the same one need the same memory."""
    digest = hashlib.sha256()
    for trace in traces:
        for part in (trace.sizes, trace.events, trace.operators):
            digest.update(part.tobytes())
        digest.update("\n".join(trace.operator_names).encode())
    return digest.hexdigest()
