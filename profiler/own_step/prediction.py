"""predict_training: the CUDA memory of a training step that exists in Python, without running it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.own_step.apart import apart
from swinmr_profiling.profiler.own_step.step import (
    MEAN_OF_OUTPUT,
    MakeOptimizer,
    ModuleStep,
    on_meta,
)
from swinmr_profiling.profiler.prediction.own_step_trace import trace_step
from swinmr_profiling.profiler.prediction.predict import memory_setting
from swinmr_profiling.profiler.prediction.settings import ALIGNED_BATCHES, UNTESTED_RULES, TrainingSetting
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.prediction.trace_family import own_step_family
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.prediction_intervals import shares_of
from swinmr_profiling.training.step.own_step import OwnStepError, TrainingStep, resized, trained_bytes

AUTOCAST: dict[Precision, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
ASSUMPTIONS = (
    "one process on one GPU, PyTorch's default allocator, no other program on the card",
    "the batch before is gone when the next one is moved to the card",
    "attention takes flash or memory-efficient kernels, as PyTorch does from compute capability 8.0 on",
    "validation is not in it",
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
        _refuse_options(targets, keywords, loss)
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
    traces = [family.direct(batch) for batch in ALIGNED_BATCHES]
    setting = memory_setting(
        family,
        TrainingSetting(precision, "none", None, is_config=True),
        batch_sizes,
        fingerprint=_fingerprint(traces),
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


def _refuse_options(targets: Sequence[Any], keywords: object, loss: object) -> None:
    if targets or keywords or loss is not None:
        raise OwnStepError("targets, keywords and loss belong to a network: a step of your own has its own")


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
