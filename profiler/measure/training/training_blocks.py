"""From the raw measurement of a training step to the `training` block of a batch size. Pure functions."""

from __future__ import annotations

import statistics

from swinmr_profiling.profiler.measure.measurement import TrainingMeasurement
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun, TrainingValidation
from swinmr_profiling.profiler.record.failures import Failure

# Of a prediction: a measurement has none of them.
PREDICTED = (
    "live_bytes", "live_interval_bytes", "reserved_interval_bytes", "by_category", "peak_phase", "peak_operator",
    "workspace_bytes", "ddp_bucket_bytes",
)  # fmt: skip


def training_block(measured: TrainingMeasurement) -> TrainingRun:
    """The block of a batch size whose training step was measured; memory in bytes, what is not known is null.

    `peak_bytes` and its like are of the training steps; whole images have their own under `validation`. Throughput
    is of the steps after the first: that one makes the optimizer's state and compiles what is compiled.
    """
    cold, warm, validation = measured.cold, measured.warm, measured.validation
    warm_ms = measured.step_ms[1:]
    images = measured.batch_size * measured.accumulation
    return TrainingRun(
        source="measured",
        input_shape=measured.input_shape,
        num_runs=measured.steps_run,
        kind=measured.memory_kind,
        precision=measured.precision,
        checkpointing=measured.checkpointing,
        patch_size=measured.patch_size,
        accumulate=measured.accumulation,
        loss=measured.loss,
        peak_bytes=max(cold.allocated_bytes, warm.allocated_bytes),
        peak_reserved_bytes=larger(cold.reserved_bytes, warm.reserved_bytes),
        requested_peak_bytes=larger(cold.requested_bytes, warm.requested_bytes),
        before_bytes=measured.before_bytes,
        cold_peak_bytes=cold.allocated_bytes,
        warm_peak_bytes=warm.allocated_bytes,
        process_bytes=measured.process_bytes,
        device_used_bytes=measured.device_used_bytes,
        context_bytes=measured.context_bytes,
        validation=None
        if validation is None or measured.validation_shape is None
        else TrainingValidation(input_shape=measured.validation_shape, **vars(validation)),
        steps_run=measured.steps_run,
        step_ms=measured.step_ms,
        images_per_second=images * 1000 / statistics.median(warm_ms) if warm_ms else None,
        retries=measured.retries,
        out_of_memory=measured.out_of_memory,
        expandable_segments=measured.expandable_segments,
        assumptions=[] if measured.finite else ["a loss was not finite: random inputs, random weights"],
        **dict.fromkeys(PREDICTED),
    )


def failed_training_block(failure: Failure, input_shape: list[int]) -> TrainingFailure:
    """The block of a batch size whose training step has no figures."""
    return TrainingFailure(
        error=failure.error, detail=failure.detail, input_shape=input_shape, source="measured"
    )


def larger(first: int | None, second: int | None) -> int | None:
    """Of two peaks, None where the device does not count them."""
    return None if first is None or second is None else max(first, second)
