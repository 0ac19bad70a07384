"""A step of the user's own, run on tensors without data while a trace looks on."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from swinmr_profiling.profiler.counting.meta_copy import random_state_kept
from swinmr_profiling.profiler.measure.own_step.meta_ways import meta_stands_for
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.trace.assumed_values import LIBRARIES
from swinmr_profiling.profiler.prediction.trace.storage_trace import (
    StorageTrace,
    Trace,
    tensors_in_moving_order,
)
from swinmr_profiling.training.step.own_step import (
    MOST_CALLS,
    OwnStepError,
    TrainingStep,
    autocast_noted,
    batch_of,
    calls_until_stepped,
    modules_of,
    take_step,
    validates,
)

# The optimizer makes its state in the first step; from the second on every step is like the one before.
TRACED_STEPS = 2


class StepTrace(StorageTrace):
    """Knows the phases of a step that is not ours: from autograd's running node, and from the optimizers' hooks."""

    def __init__(self, assumed: Mapping[str, Any], *, as_on_cuda: bool = True) -> None:
        super().__init__(as_on_cuda=as_on_cuda, assumed=assumed)
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

        hooks = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)]
        self.in_step = True
        try:
            yield
        finally:
            self.in_step = self.in_optimizer = False
            for hook in hooks:
                hook.remove()


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
    trace = StepTrace(assumed, as_on_cuda=as_on_cuda)
    emulation = cuda_on_meta() if as_on_cuda else nullcontext()
    device = torch.device("meta")
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
        emulation,
        meta_stands_for("cuda", with_autocast=True),
        autocast_noted() as noted,
        told_with_its_line(),
    ):
        gc.collect()
        gc.freeze()
        try:
            with trace:
                trace.category = "parameters"
                for module in modules_of(step):
                    for tensor in tensors_in_moving_order(module):
                        trace.enter(tensor, "module.to(device)")
                step.setup(device)
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
        finally:
            gc.unfreeze()
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
        text = " ".join(str(error).split())
        raise OwnStepError(f"{place}{type(error).__name__}: {text}") from error
