"""One batch size of training, measured: the step of `training/` as `train.py` runs it, then one validation batch.

Belongs into a process of its own: an out-of-memory error leaves fragments, and libraries keep their workspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.example_data import ExampleData, validation_shape
from swinmr_profiling.profiler.measure.forward_pass import state_preserved
from swinmr_profiling.profiler.measure.measurement import StepPeaks, TrainingMeasurement
from swinmr_profiling.profiler.measure.training.training_memory import TrainingMemory
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


def probe_training(
    built: BuiltModel,
    config: ExperimentConfig,
    device: torch.device,
    batch_size: int,
    steps: int,
    memory: TrainingMemory,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> TrainingMeasurement:
    """Trains a copy of the network on example inputs for `steps` optimizer steps, then validates one batch.

    The network itself, torch's settings and random numbers stay as they are.
    on_stage: told what begins ("step 2 of 3"), so that a process that dies there has said where.
    Raises whatever the network, the loss or the device raises; NoStepError when no step changed the weights.
    """
    if steps < MIN_TRAINING_STEPS:
        raise ValueError(f"{steps} steps: the memory of training shows from {MIN_TRAINING_STEPS} on")
    if batch_size < 1:
        raise ValueError(f"a batch of {batch_size}: a step needs at least one sample")
    on_stage("setting up")
    with prepared_training(built, config, device, batch_size, steps) as prepared:
        state, settings, stream, validate, loss = prepared
        memory.reset_peaks()
        before_bytes, troubles = memory.current_bytes(), memory.troubles()
        made = _train(state, settings, stream, steps, memory, on_stage)
        warm = memory.peaks()
        memory.reset_peaks()
        on_stage("validation")
        _validate(state, validate)
        validation = memory.peaks()
        now, since = memory.device_memory(), memory.troubles()
        return TrainingMeasurement(
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
            memory_kind=memory.memory_kind,
            steps_run=made.steps_run,
            step_ms=made.step_ms,
            before_bytes=before_bytes,
            cold=made.cold,
            warm=warm,
            validation=validation,
            retries=since.retries - troubles.retries,
            out_of_memory=since.out_of_memory - troubles.out_of_memory,
            process_bytes=memory.process_bytes(),
            device_used_bytes=now.total_bytes - now.free_bytes,
            device_total_bytes=now.total_bytes,
            reserved_at_end_bytes=memory.reserved_bytes(),
            expandable_segments=memory.expandable_segments(),
            finite=made.finite,
        )


@dataclass(frozen=True)
class _Trained:
    steps_run: int
    step_ms: list[float]
    cold: StepPeaks
    finite: bool


def _train(
    state: TrainingState,
    settings: StepSettings,
    stream: Iterator[MicroBatch],
    steps: int,
    memory: TrainingMemory,
    on_stage: Callable[[str], None],
) -> _Trained:
    step_ms: list[float] = []
    cold: StepPeaks | None = None
    finite, steps_run, outcome = True, 0, None

    def check(value: Tensor) -> bool:
        # Waits for the device as training does, and goes on: memory does not depend on the value.
        nonlocal finite
        finite = is_finite(value) and finite
        return True

    def count(*_: Any) -> None:
        nonlocal steps_run
        steps_run += 1

    def step() -> None:
        nonlocal outcome
        outcome = training_step(state, settings, stream, check)

    hook = state.optimizer.register_step_post_hook(count)
    try:
        while steps_run < steps and len(step_ms) < steps + MAX_OVERFLOWING_STEPS:
            on_stage(f"step {len(step_ms) + 1} of {steps}")
            step_ms.append(memory.time_ms(step))
            if cold is None:
                cold = memory.peaks()
                memory.reset_peaks()
    finally:
        hook.remove()
    del outcome
    if not steps_run:
        raise NoStepError(
            f"no step of {len(step_ms)} changed the weights (the gradients overflow): nothing was measured"
        )
    assert cold is not None
    return _Trained(steps_run, step_ms, cold, finite)


def _validate(state: TrainingState, validate: Callable[[nn.Module], object]) -> None:
    with state.validated_network() as network:
        network.eval()
        without_gradients(network, lambda: validate(network))
