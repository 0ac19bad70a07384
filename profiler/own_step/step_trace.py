"""A step of the user's own, run on tensors without data while a trace looks on."""

from __future__ import annotations

import gc
import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch.optim import optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _foreach_utils

import swinmr_profiling
from swinmr_profiling.profiler.counting.meta_copy import random_state_kept
from swinmr_profiling.profiler.own_step.step import OwnStepError, TrainingStep, batch_of, modules_of
from swinmr_profiling.profiler.prediction.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.storage_trace import StorageTrace, Trace, tensors_in_moving_order

# The optimizer makes its state in the first step; from the second on every step is like the one before.
TRACED_STEPS = 2
FUSED = "_get_fused_kernels_supported_devices"
COPY_ELSEWHERE = torch.ops.aten._to_copy.default
VALUE_OF_A_TENSOR = torch.ops.aten._local_scalar_dense.default
# Code that is not the user's: torch's and ours (in a checkout the rooms lie beside his files).
LIBRARIES = (
    *torch.__path__,
    *(
        str(Path(folder) / room)
        for folder in swinmr_profiling.__path__
        for room in ("profiler", "training", "models")
    ),
)


class StepTrace(StorageTrace):
    """Knows the phases of a step that is not ours: from autograd's running node, and from the optimizers' hooks.

    assumed: "file.py:12" -> what a tensor's value is taken for, where that line asks for one.
    """

    def __init__(self, assumed: Mapping[str, Any], *, as_on_cuda: bool = True) -> None:
        super().__init__(as_on_cuda=as_on_cuda)
        self.assumed = assumed
        self.used: dict[str, Any] = {}
        self.in_step = self.in_optimizer = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.in_step and not self.in_optimizer:
            self.phase = "forward" if torch._C._current_autograd_node() is None else "backward"
        if function is VALUE_OF_A_TENSOR and args[0].is_meta:
            return self._assumed_value()
        if function is COPY_ELSEWHERE and args[0].is_meta and _is_cpu((kwargs or {}).get("device")):
            raise OwnStepError(_copied_to_the_host())
        return super().__torch_dispatch__(function, types, args, kwargs)

    def _assumed_value(self) -> Any:
        place = _users_line(sys._getframe())
        if place is None:
            raise OwnStepError(
                "a library asks for a tensor's value, which a prediction without data does not have"
            )
        key, line = place
        if key not in self.assumed:
            raise OwnStepError(
                f"{key}: {line!r} asks for a tensor's value, which a prediction without data does not have; "
                f'say what to take: assume={{"{key}": 0.0}}'
            )
        self.used[key] = self.assumed[key]
        return self.assumed[key]

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """While a step runs."""

        def begin(*_: Any) -> None:
            self.in_optimizer, self.phase = True, "optimizer"

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


def _copied_to_the_host() -> str:
    key, line = _users_line(sys._getframe()) or ("a library", "")
    return (
        f"{key}: {line!r} copies a tensor to the CPU, which a prediction without data cannot do: let the step use the "
        "device that setup(device) is given, and leave out what only reports"
    )


def _is_cpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


def _users_line(frame: FrameType | None) -> tuple[str, str] | None:
    """("file.py:12", its text) of the innermost frame that is neither torch's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(LIBRARIES) and not file.startswith("<frozen"):
            return f"{Path(file).name}:{frame.f_lineno}", linecache.getline(file, frame.f_lineno).strip()
        frame = frame.f_back
    return None


def trace_step(
    step: TrainingStep, example: Any, batch_size: int, assumed: Mapping[str, Any], *, as_on_cuda: bool = True
) -> Trace:
    """Traces two steps of a step on the meta device (`on_meta`), as CUDA would run them, or with plain operators.

    example: see `batch_of`. The trace's `assumptions` name the values that were assumed.
    Raises OwnStepError with the line of the user's code that raised.
    """
    trace = StepTrace(assumed, as_on_cuda=as_on_cuda)
    emulation = cuda_on_meta() if as_on_cuda else nullcontext()
    device = torch.device("meta")
    with random_state_kept(), emulation, _cuda_s_ways(), told_with_its_line():
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
                for _ in range(TRACED_STEPS):
                    trace.start_step()
                    trace.phase, trace.category = "inputs", "inputs"
                    batch = batch_of(step, example, batch_size)
                    trace.phase, trace.category = "forward", None
                    with trace.stepping():
                        outcome = step.step(batch)
                    del batch
                    gc.collect()
                traced = trace.finish(
                    batch_size, [f"{line} gives {value!r}" for line, value in trace.used.items()]
                )
                del outcome
        finally:
            gc.unfreeze()
    return traced


@contextmanager
def _cuda_s_ways() -> Iterator[None]:
    """`torch.autocast(device.type)` of the device that a step was given is CUDA's; fused optimizers take it."""
    make = torch.amp.autocast_mode.autocast.__init__

    def on_cuda(self: Any, device_type: str, *arguments: Any, **options: Any) -> None:
        make(self, "cuda" if device_type == "meta" else device_type, *arguments, **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", on_cuda))
        for module in (_foreach_utils, optimizer):
            if supported := getattr(module, FUSED, None):
                stack.enter_context(mock.patch.object(module, FUSED, return_value=[*supported(), "meta"]))
        yield


@contextmanager
def told_with_its_line() -> Iterator[None]:
    """An exception of the user's code as one line with its place."""
    try:
        yield
    except OwnStepError:
        raise
    except Exception as error:
        places = [
            entry
            for entry in traceback.extract_tb(error.__traceback__)
            if not entry.filename.startswith(LIBRARIES) and not entry.filename.startswith("<")
        ]
        place = f"{Path(places[-1].filename).name}:{places[-1].lineno}: " if places else ""
        text = " ".join(str(error).split())
        raise OwnStepError(f"{place}{type(error).__name__}: {text}") from error
