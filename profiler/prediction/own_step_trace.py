"""A step of the user's own, run on tensors without data while a trace looks on: one from Python, or the one that a
config names, on batches of its own or of the loader's.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept
from swinmr_profiling.profiler.measure.example_data import loader_batch
from swinmr_profiling.profiler.measure.training.own_step import (
    OtherStep,
    input_shape,
    meta_stands_for,
    precision_of,
)
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.trace.assumed_values import LIBRARIES
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace, Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import TRACED_STEPS, young_garbage_only
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.own_step import (
    MOST_CALLS,
    OwnStepError,
    TrainingStep,
    autocast_noted,
    batch_of,
    calls_until_stepped,
    modules_of,
    take_step,
    trained_bytes,
    validates,
    validation_batch_of,
)

VALIDATION = "validation is not in it: the step has no validate(batch)"


class StepTrace(StorageTrace):
    """Knows the phases of a step that is not ours: from autograd's running node, and from the optimizers' hooks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.in_step = self.in_optimizer = self.has_closure = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.in_step:
            if torch._C._current_autograd_node() is not None:
                self.phase = "backward"
            elif not self.in_optimizer:
                self.phase = "forward"
            elif self.has_closure:  # which computes the loss, with gradients, inside the optimizer's step
                self.phase = "forward" if torch.is_grad_enabled() else "optimizer"
        return super().__torch_dispatch__(function, types, args, kwargs)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """While a step runs."""

        def begin(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            self.in_optimizer, self.phase = True, "optimizer"
            # The hook's arguments begin with the optimizer itself.
            self.has_closure = any(callable(value) for value in (*args[1:], *kwargs.values()))

        def end(*_: Any) -> None:
            self.in_optimizer, self.phase = False, "averaging"

        self.in_step = True
        try:
            with register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end):
                yield
        finally:
            self.in_step = self.in_optimizer = False


def trace_step(
    step: TrainingStep,
    example: Any,
    batch_size: int,
    assumed: Mapping[str, Any],
    *,
    as_on_cuda: bool = True,
    validated: Callable[[TrainingStep], Any] | None = None,
) -> Trace:
    """Traces a step on the meta device (`on_meta`), as CUDA would run it, or with plain operators: twice, or as often
    as its optimizers need to have stepped twice; then its validation, where it has one.

    example: see `batch_of`. validated: makes the batch that is validated; None: no validation.
    The trace's `assumptions` name the values that were assumed.
    Raises OwnStepError with the line of the user's code that raised.
    """
    trace = StepTrace(assumed=assumed, as_on_cuda=as_on_cuda)
    remarks: list[str] = []

    def never_stepped(names: list[str]) -> None:
        if names:
            remarks.append(f"no step of {', '.join(names)} in {MOST_CALLS} calls: its state is not in it")

    def still_grows(names: list[str]) -> None:
        if names:
            remarks.append(
                f"the state of {', '.join(names)} still grew after {MOST_CALLS} calls: it will need more than this"
            )

    with (
        random_state_kept(),
        cuda_on_meta() if as_on_cuda else nullcontext(),
        meta_stands_for("cuda", with_autocast=True),
        autocast_noted() as noted,
        told_with_its_line(),
        young_garbage_only(),
        trace,
    ):
        trace.category = "parameters"
        for module in modules_of(step):
            trace.move_in(module)
        step.setup(torch.device("meta"))
        trace.category = None
        for _ in calls_until_stepped(step, TRACED_STEPS, never_stepped, still_grows):
            trace.start_step()
            trace.phase, trace.category = "inputs", "inputs"
            batch = batch_of(step, example, batch_size)
            trace.phase, trace.category = "forward", None
            with trace.stepping():
                outcome = take_step(step, batch)
            del batch
            gc.collect()
        if validated is not None and validates(step):
            trace.phase, trace.category = "validation", "inputs"
            trace.start_step()
            batch, trace.category = validated(step), None
            with torch.no_grad():
                outcome = (outcome, step.validate(batch))  # type: ignore[attr-defined]
            del batch
        traced = trace.finish(batch_size, remarks)
        traced.autocast = sorted(str(dtype).removeprefix("torch.") for dtype in noted)
        del outcome
    return traced


@contextmanager
def told_with_its_line() -> Iterator[None]:
    """An exception of the user's code as one line with its place."""
    try:
        yield
    except OwnStepError:
        raise
    except (Exception, SystemExit) as error:
        places = [
            entry
            for entry in traceback.extract_tb(error.__traceback__)
            if not entry.filename.startswith(LIBRARIES) and not entry.filename.startswith("<")
        ]
        place = f"{Path(places[-1].filename).name}:{places[-1].lineno}: " if places else ""
        raise OwnStepError(f"{place}{type(error).__name__}: {' '.join(str(error).split())}") from error


def without_data(parts: Any) -> Any:
    """Copies on the meta device, which share what the originals share. Raises OwnStepError where one cannot be made."""
    try:
        return copy_to(nn.Module(), parts)[1]
    except Exception as error:
        raise OwnStepError(f"the step cannot be copied: {type(error).__name__}: {error}") from error


def trace_configured(
    step: OtherStep,
    built: BuiltModel,
    config: ExperimentConfig,
    batch_size: int,
    *,
    as_on_cuda: bool = True,
) -> Trace:
    """The trace of the step at a batch size. Raises OwnStepError, ModelError."""
    example, whole = (
        loader_batch(built, config, torch.device("meta"), which) for which in ("training", "inference")
    )
    with attention_kernels(config.system.attention):
        return trace_step(
            step.made(without_data),
            example,
            batch_size,
            config.training.assume,
            as_on_cuda=as_on_cuda,
            validated=lambda made: validation_batch_of(made, whole, config.data.val_batch_size),
        )


def observed(
    step: OtherStep, built: BuiltModel, config: ExperimentConfig, trace: Trace
) -> tuple[list[int] | None, int, Precision]:
    """Of a step that was traced, after its `setup` on the meta device.

    Returns:
        the shape of the first tensor in the batch that it validates, None where it does not say what its validation is;
        bytes of the parameters that need a gradient; what it computes in: the dtype of its autocast, else of its
        weights.
    """
    made, size, shape = step.made(without_data), config.data.val_batch_size, None
    with told_with_its_line(), torch.random.fork_rng(devices=()):
        made.setup(torch.device("meta"))
    if validates(made):
        whole = loader_batch(built, config, torch.device("meta"), "inference")
        with told_with_its_line():
            shape = input_shape(validation_batch_of(made, whole, size), size)
    return shape, trained_bytes(made), precision_of(made, {getattr(torch, name) for name in trace.autocast})
