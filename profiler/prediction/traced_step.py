"""The training step of `training/`, run on tensors without data while a trace looks on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from configs import ExperimentConfig
from models.inputs import BuiltModel
from models.windows import clear_cache
from profiler.counting.meta_copy import copy_to
from profiler.prediction.cuda_emulation import cuda_on_meta
from profiler.prediction.storage_trace import StorageTrace, Trace, tensors_in_moving_order
from training.losses import build_loss, first_tensor
from training.step import MicroBatch, StepSettings, TrainingState, build_settings, build_state, training_step

# The optimizer makes its state in the first step; from the second on every step is like the one before.
TRACED_STEPS = 2
FINITE_ASSUMPTION = "every loss is finite"


class PhaseScaler:
    """Stands where the step's gradient scaler stands: tells the trace what comes next, and asks no tensor its value.

    In fp16 it makes what torch.amp.GradScaler makes: a scaled loss, the inverse scale, the flag of overflow.
    """

    def __init__(self, trace: StorageTrace, scales: bool) -> None:
        self.trace = trace
        self.scales = scales
        self._scale: Tensor | None = None
        self._unscaled = False

    def scale(self, loss: Tensor) -> Tensor:
        if self.scales and self._scale is None:
            self._scale = torch.empty((), device=loss.device)
            self._growth_tracker = torch.empty((), dtype=torch.int32, device=loss.device)
        scaled = loss * self._scale if self.scales else loss
        self.trace.phase = "backward"
        return scaled

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        self.trace.phase = "clipping"
        if self.scales and not self._unscaled:
            self._inverse = self._scale.double().reciprocal().float()
            self._found_inf = torch.empty((), device=self._scale.device)
            self._unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.unscale_(optimizer)
        self.trace.phase = "optimizer"
        optimizer.step()

    def update(self) -> None:
        self.trace.phase = "averaging"
        self._inverse = self._found_inf = None
        self._unscaled = False


class PhasedLoss:
    """The loss, announced to the trace."""

    def __init__(self, trace: StorageTrace, loss: nn.Module) -> None:
        self.trace, self.loss = trace, loss

    def __call__(self, output: Any, target: Tensor) -> Any:
        self.trace.phase = "loss"
        return self.loss(output, target)


def _finite(loss: Tensor) -> bool:
    torch.isfinite(loss)  # allocates what the real check allocates
    return True


def copy_without_data(module: nn.Module) -> nn.Module:
    """A copy on the meta device; the module itself is only read."""
    return copy_to(module, ())[0]


def copy_with_data(module: nn.Module) -> nn.Module:
    """A real copy; the module itself is only read."""
    return copy_to(module, (), None)[0]


def output_shape(
    built: BuiltModel, module: nn.Module, batch_size: int, device: str = "meta"
) -> tuple[int, ...]:
    """Shape of the network's first result for a training batch, by one forward."""
    with torch.no_grad():
        return tuple(first_tensor(module(*built.example_inputs(batch_size, device, which="training"))).shape)


def trace_training(
    built: BuiltModel,
    config: ExperimentConfig,
    batch_size: int,
    *,
    as_on_cuda: bool = True,
    validation: bool = True,
    steps: int = TRACED_STEPS,
    device: str = "meta",
) -> Trace:
    """Traces `steps` training steps of micro-batches of `batch_size`, then one validation batch.

    as_on_cuda: decide as CUDA would (attention, autocast, foreach); else the plain operators of the device.
    device: "meta", or "cpu" for a real run, which is what a trace without data is held against.
    Raises whatever the network raises that needs values: it cannot be traced.
    """
    clear_cache()
    with cuda_on_meta() if as_on_cuda else nullcontext():
        copied = copy_without_data if device == "meta" else copy_with_data
        module = copied(built.module).train()
        loss = copied(build_loss(config))
        sample_shape = output_shape(built, module, batch_size, device)
        clear_cache()
        trace = StorageTrace(device)
        with _young_garbage_only(), trace:
            state, settings = _set_up(trace, config, module, loss)
            stream = _micro_batches(trace, built, batch_size, sample_shape, device)
            outcome = None
            for _ in range(steps):
                trace.start_step()
                outcome = training_step(state, settings, stream, _finite)
                # What only Python's cycles hold would be freed at some time; here it is at the end of a step.
                gc.collect()
            if validation:
                trace.phase = "validation"
                trace.start_step()
                _validate(built, config, state, settings, device)
            traced = trace.finish(batch_size, [FINITE_ASSUMPTION])
            del outcome
    clear_cache()
    return traced


@contextmanager
def _young_garbage_only() -> Iterator[None]:
    """Keeps what is there already out of garbage collection: it cannot be garbage of the traced steps."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def trace_inference(built: BuiltModel, config: ExperimentConfig, batch_size: int) -> Trace:
    """Traces two forward passes without gradients of whole images, as the profiler measures them on CUDA."""
    clear_cache()
    with cuda_on_meta():
        module = copy_without_data(built.module).eval()
        settings = build_settings(config, "cuda")
        enabled = settings.autocast_dtype is not None
        trace = StorageTrace()
        with trace, torch.no_grad():
            trace.category = "parameters"
            for tensor in tensors_in_moving_order(module):
                trace.enter(tensor, "module.to(device)")
            output = None
            for _ in range(TRACED_STEPS):
                trace.start_step()
                trace.phase, trace.category = "inputs", "inputs"
                inputs = built.example_inputs(batch_size, "meta", which="inference")
                trace.phase, trace.category = "forward", None
                with torch.autocast("cuda", settings.autocast_dtype, enabled=enabled):
                    output = module(*inputs)
                del inputs
            traced = trace.finish(batch_size, [])
            del output
    clear_cache()
    return traced


def _set_up(
    trace: StorageTrace, config: ExperimentConfig, module: nn.Module, loss: nn.Module
) -> tuple[TrainingState, StepSettings]:
    # In the order of training/loop.py: the loss is on the device before the network.
    for category, part in (("loss_networks", loss), ("parameters", module)):
        trace.category = category
        for tensor in tensors_in_moving_order(part):
            trace.enter(tensor, "module.to(device)")
    if config.system.channels_last:
        trace.category = "parameters"
        module.to(memory_format=torch.channels_last)
    trace.category = "ema"
    state = build_state(config, module, loss, total_steps=TRACED_STEPS)
    trace.category = None
    settings = build_settings(config, "cuda")
    state.scaler = PhaseScaler(trace, settings.autocast_dtype is torch.float16)
    state.loss = PhasedLoss(trace, loss)
    return state, settings


def _micro_batches(
    trace: StorageTrace, built: BuiltModel, batch_size: int, sample_shape: tuple[int, ...], device: str
) -> Iterator[MicroBatch]:
    """As training/batch_stream.py hands them over: made when asked for, held by nobody else."""
    while True:
        yield _batch(trace, built, batch_size, sample_shape, device)


def _batch(
    trace: StorageTrace, built: BuiltModel, batch_size: int, sample_shape: tuple[int, ...], device: str
) -> MicroBatch:
    trace.phase, trace.category = "inputs", "inputs"
    inputs = built.example_inputs(batch_size, device, which="training")
    target = torch.zeros(sample_shape, device=device)
    trace.phase, trace.category = "forward", None
    return MicroBatch(inputs, target)


def _validate(
    built: BuiltModel, config: ExperimentConfig, state: TrainingState, settings: StepSettings, device: str
) -> None:
    """One batch of training/validation.py: the averaged weights on whole images."""
    network = state.module if state.ema is None else state.ema.module
    network.eval()
    with torch.no_grad():
        inputs = built.example_inputs(config.data.val_batch_size, device, which="inference")
        enabled = settings.autocast_dtype is not None
        with torch.autocast("cuda", settings.autocast_dtype, enabled=enabled):
            output = first_tensor(network(*inputs))
        state.loss.loss(output, torch.empty_like(output))
