"""One batch size of a training step of the user's own, measured: called as often as its optimizers need."""

from __future__ import annotations

from collections.abc import Callable, Set

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.example_data import loader_batch
from swinmr_profiling.profiler.measure.measurement import StepPeaks, TrainingMeasurement
from swinmr_profiling.profiler.measure.own_step.other_step import OtherStep
from swinmr_profiling.profiler.measure.training.training_memory import TrainingMemory
from swinmr_profiling.profiler.measure.training.training_probe import PRECISION_NAMES, as_training_sets
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.limits import MIN_TRAINING_STEPS
from swinmr_profiling.training.step.configured_step import loss_label
from swinmr_profiling.training.step.own_step import (
    TrainingStep,
    autocast_noted,
    batch_of,
    calls_until_stepped,
    modules_of,
    take_step,
    validates,
    validation_batch_of,
)


def probe_own_step(
    step: OtherStep,
    built: BuiltModel,
    config: ExperimentConfig,
    device: torch.device,
    batch_size: int,
    steps: int,
    memory: TrainingMemory,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> TrainingMeasurement:
    """Calls the step `steps` times, and on until each of its optimizers has stepped twice.

    Its batches are its own, or the loader's with the network's example inputs. Then its validation, where it has one.
    on_stage: told what begins. Raises whatever the step or the device raises.
    """
    if steps < MIN_TRAINING_STEPS:
        raise ValueError(f"{steps} steps: the memory of training shows from {MIN_TRAINING_STEPS} on")
    example = loader_batch(built, config, torch.device("cpu"))
    with as_training_sets(config), autocast_noted() as noted:
        on_stage("setting up")
        own = step.made()
        own.setup(device)
        memory.reset_peaks()
        before_bytes, troubles = memory.current_bytes(), memory.troubles()
        step_ms: list[float] = []
        cold: StepPeaks | None = None
        finite, shape = True, [batch_size]
        for number in calls_until_stepped(own, steps):
            on_stage(f"step {number} of {steps}")
            batch = batch_of(own, example, batch_size, device)
            shape = input_shape(batch, batch_size)
            call = _Call(own, batch)
            del batch
            step_ms.append(memory.time_ms(call))
            finite = _is_finite(call.outcome) and finite
            del call
            if cold is None:
                cold = memory.peaks()
                memory.reset_peaks()
        assert cold is not None
        warm = memory.peaks()
        validation, validated = None, None
        if validates(own):
            on_stage("validation")
            memory.reset_peaks()
            size = config.data.val_batch_size
            whole = loader_batch(built, config, torch.device("cpu"), "inference")
            batch = validation_batch_of(own, whole, size, device)
            validated = input_shape(batch, size)
            with torch.no_grad():
                own.validate(batch)  # type: ignore[attr-defined]
            del batch
            validation = memory.peaks()
        now, since = memory.device_memory(), memory.troubles()
        return TrainingMeasurement(
            batch_size=batch_size,
            accumulation=1,
            input_shape=shape,
            validation_shape=validated,
            precision=precision_of(own, noted),
            checkpointing="none",
            patch_size=None,
            loss=loss_label(config),
            memory_kind=memory.memory_kind,
            steps_run=len(step_ms),
            step_ms=step_ms,
            before_bytes=before_bytes,
            cold=cold,
            warm=warm,
            validation=validation,
            retries=since.retries - troubles.retries,
            out_of_memory=since.out_of_memory - troubles.out_of_memory,
            process_bytes=memory.process_bytes(),
            device_used_bytes=now.total_bytes - now.free_bytes,
            device_total_bytes=now.total_bytes,
            reserved_at_end_bytes=memory.reserved_bytes(),
            expandable_segments=memory.expandable_segments(),
            finite=finite,
        )


class _Call:
    """One call of a step with a batch that nobody else holds."""

    def __init__(self, step: TrainingStep, batch: object) -> None:
        self.step, self.batch = step, batch
        self.outcome: object = None

    def __call__(self) -> None:
        self.outcome = take_step(self.step, self.batch)
        self.batch = None


def input_shape(batch: object, batch_size: int) -> list[int]:
    """The shape of a batch's first tensor; of a batch without one, the number of samples."""
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
    return list(tensors[0].shape) if tensors else [batch_size]


def precision_of(step: object, autocast: Set[torch.dtype]) -> Precision:
    """What a step computes in: the dtype of its autocast, else that of its weights."""
    for dtype in (torch.bfloat16, torch.float16):
        if dtype in autocast:
            return PRECISION_NAMES[dtype]
    in_bf16 = [p.dtype == torch.bfloat16 for network in modules_of(step) for p in network.parameters()]
    return "pure_bf16" if in_bf16 and all(in_bf16) else "fp32"


def _is_finite(outcome: object) -> bool:
    losses = [x for x in tree_leaves(outcome) if isinstance(x, Tensor) and not x.dim()]
    return all(bool(torch.isfinite(loss)) for loss in losses)
