"""One batch size of training, measured: the step of `training/` as `train.py` runs it, then one validation batch.

Belongs into a process of its own: an out-of-memory error leaves fragments, and libraries keep their workspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.example_data import ExampleData, validation_shape
from swinmr_profiling.profiler.measure.forward_pass import state_preserved
from swinmr_profiling.profiler.measure.machine.devices import MeasuredDevice
from swinmr_profiling.profiler.measure.measurement import StepPeaks, TrainingMeasurement
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.limits import MIN_TRAINING_STEPS
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.losses import Loss, build_loss
from swinmr_profiling.training.step.training_step import (
    MicroBatch,
    StepSettings,
    TrainingState,
    build_settings,
    build_state,
    is_finite,
    training_step,
)

# fp16 starts with a loss scale that overflows, and each such step leaves the optimizer out; the scale halves each
# time, so that from 65536 this many steps take it to 1.
MAX_OVERFLOWING_STEPS = 16
PRECISION_NAMES: dict[torch.dtype | None, Precision] = {
    None: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}


class NoStepError(RuntimeError):
    """The optimizer never made a step: what was measured is not training."""


@contextmanager
def as_training_sets(config: ExperimentConfig) -> Iterator[None]:
    """What `training/run/loop.py` sets for the process, and what it was again afterwards."""
    was, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    if config.system.threads is not None:
        torch.set_num_threads(config.system.threads)
    torch.use_deterministic_algorithms(config.system.deterministic)
    torch.manual_seed(config.system.seed)
    try:
        with attention_kernels(config.system.attention):
            yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warn_only)


@contextmanager
def prepared_training(
    built: BuiltModel, config: ExperimentConfig, device: torch.device, batch_size: int, steps: int
) -> Iterator[tuple[TrainingState, StepSettings, Iterator[MicroBatch], Callable[[nn.Module], object], Loss]]:
    """A copy of the network ready to be trained on example inputs: state, settings, batches, a validation, the loss.

    The network itself, torch's settings and random numbers are as they were when the block ends.
    """
    with state_preserved(built.module), as_training_sets(config):
        # In the order of training/run/loop.py: where a tensor comes to lie depends on it.
        loss = build_loss(config).to(device)
        settings = build_settings(config, device.type)
        data = ExampleData(built, config, loss, device)
        stream, validate = data.micro_batches(batch_size), data.validation(settings)
        module = copy_to(built.module, (), device=None)[0].to(device)
        if config.system.channels_last:
            module.to(memory_format=torch.channels_last)

        def wrap(network: nn.Module) -> nn.Module:
            return cast("nn.Module", torch.compile(network)) if config.system.compile else network

        yield build_state(config, module, loss, steps, wrap=wrap), settings, stream, validate, loss


class StepWatch:
    """What training steps, and a validation after them, take of a device, from now on.

    finite: whether every loss so far was a number; set by whoever makes the steps.
    Raises ValueError for fewer steps than show it.
    """

    def __init__(self, device: MeasuredDevice, steps: int, on_stage: Callable[[str], None]) -> None:
        """on_stage: told what begins ("validation"), so that a process that dies there has said where."""
        if steps < MIN_TRAINING_STEPS:
            raise ValueError(f"{steps} steps: the memory of training shows from {MIN_TRAINING_STEPS} on")
        self.on_stage, self.finite = on_stage, True
        self.step_ms: list[float] = []
        self._device = device
        self._validation: StepPeaks | None = None
        device.reset_peak()
        self._before_bytes, self._troubles = device.current_bytes(), device.troubles()

    def time(self, step: Callable[[], object], let_go: Callable[[], object] = lambda: None) -> None:
        """One step. The first one's peak is told apart. let_go: of what it returned, before the next peak begins."""
        self.step_ms.append(self._device.time_ms(step))
        let_go()
        if len(self.step_ms) == 1:
            self._cold = self._device.peak()
            self._device.reset_peak()

    def end(self, validate: Callable[[], object] | None) -> None:
        """After the last step. validate: runs one batch of validation."""
        self._warm = self._device.peak()
        if validate is not None:
            self._device.reset_peak()
            self.on_stage("validation")
            validate()
            self._validation = self._device.peak()

    def measurement(self, **described: Any) -> TrainingMeasurement:
        """What was measured. described: the fields that say what was run."""
        device = self._device
        now, since = device.device_memory(), device.troubles()
        return TrainingMeasurement(
            memory_kind=device.memory_kind,
            step_ms=self.step_ms,
            before_bytes=self._before_bytes,
            cold=self._cold,
            warm=self._warm,
            validation=self._validation,
            retries=since.retries - self._troubles.retries,
            out_of_memory=since.out_of_memory - self._troubles.out_of_memory,
            process_bytes=device.process_bytes(),
            device_used_bytes=now.total_bytes - now.free_bytes,
            device_total_bytes=now.total_bytes,
            reserved_at_end_bytes=device.reserved_bytes(),
            expandable_segments=device.expandable_segments(),
            finite=self.finite,
            **described,
        )


def probe_training(
    built: BuiltModel,
    config: ExperimentConfig,
    device: torch.device,
    batch_size: int,
    steps: int,
    measured: MeasuredDevice,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> TrainingMeasurement:
    """Trains a copy of the network on example inputs for `steps` optimizer steps, then validates one batch.

    The network itself, torch's settings and random numbers stay as they are.
    on_stage: told what begins ("step 2 of 3"), so that a process that dies there has said where.
    Raises whatever the network, the loss or the device raises; NoStepError when no step changed the weights.
    """
    if batch_size < 1:
        raise ValueError(f"a batch of {batch_size}: a step needs at least one sample")
    on_stage("setting up")
    with prepared_training(built, config, device, batch_size, steps) as prepared:
        state, settings, stream, validate, loss = prepared
        watch = StepWatch(measured, steps, on_stage)
        changed: list[object] = []
        outcome = None

        def check(value: Tensor) -> bool:
            # Waits for the device as training does, and goes on: memory does not depend on the value.
            watch.finite = is_finite(value) and watch.finite
            return True

        def step() -> None:
            nonlocal outcome
            outcome = training_step(state, settings, stream, check)

        with state.optimizer.register_step_post_hook(lambda *_: changed.append(None)):
            while len(changed) < steps and len(watch.step_ms) < steps + MAX_OVERFLOWING_STEPS:
                on_stage(f"step {len(watch.step_ms) + 1} of {steps}")
                watch.time(step)
        del outcome
        if not changed:
            raise NoStepError(
                f"no step of {len(watch.step_ms)} changed the weights (the gradients overflow): nothing was measured"
            )
        watch.end(partial(_validate, state, validate))
        return watch.measurement(
            batch_size=batch_size,
            accumulation=config.training.accumulate,
            input_shape=built.input_shape(batch_size, "training"),
            validation_shape=validation_shape(built, config),
            precision="pure_bf16"
            if config.system.mixed_precision == "pure_bf16"
            else PRECISION_NAMES[settings.autocast_dtype],
            checkpointing=config.training.checkpointing_kind,
            patch_size=None if config.training_patch_hw is None else list(config.training_patch_hw),
            loss=loss.label,
            steps_run=len(changed),
        )


def _validate(state: TrainingState, validate: Callable[[nn.Module], object]) -> None:
    with state.validated_network() as network:
        network.eval()
        without_gradients(network, lambda: validate(network))
