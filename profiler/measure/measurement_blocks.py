"""From raw measurements to the blocks of a batch size: `timing`, `memory`, `training`, and the warnings they earn.

Pure functions.
"""

from __future__ import annotations

import statistics

from swinmr_profiling.profiler.measure.measurement import (
    BatchMeasurement,
    MetricMeasurement,
    TrainingMeasurement,
)
from swinmr_profiling.profiler.measure.timing.latency import TARGET_HALF_WIDTH
from swinmr_profiling.profiler.measure.timing.process_statistics import (
    median_interval_of_processes,
    process_warnings,
)
from swinmr_profiling.profiler.measure.timing.timing_statistics import (
    TimingWarning,
    interval_share,
    summarise,
)
from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch, Memory, PerceptualMetric, Timing
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun, TrainingValidation
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.units import MIB
from swinmr_profiling.profiler.record.warnings import ProfileWarning

# cudnn.benchmark tries algorithms with large workspaces in the first run: a cold peak a tenth above the warm one
# is that, and it is what decides whether the first step fits.
COLD_SPIKE_SHARE = 0.10
# Of a prediction: a measurement has none of them.
PREDICTED = (
    "live_bytes", "live_interval_bytes", "reserved_interval_bytes", "by_category", "peak_phase", "peak_operator",
    "workspace_bytes", "ddp_bucket_bytes",
)  # fmt: skip

TIMING_WORDS = {
    TimingWarning.NOISY: "the inter-quartile range is over 10 % of the median: close other programs, raise "
    "--num-runs or --time-budget",
    TimingWarning.DRIFT: "the last third of the runs differs from the first by over 5 %: the machine's speed "
    "changed while measuring (heat, other work)",
    TimingWarning.TWO_MODES: "the runs fall into two groups: clocks that switch, or other work every few runs",
    TimingWarning.OUTLIERS: "at least one run in twenty is far slower than the rest: read the median, not the "
    "mean",
    TimingWarning.PROCESSES_DIFFER: "the medians of the measuring processes differ by over 10 % more than the runs "
    "within them explain: trust the interval, not a single process",
}


def timing_block(measured: BatchMeasurement | MetricMeasurement, device_kind: str) -> Timing:
    """Milliseconds per forward pass of the whole batch, images per second, raw samples.

    The samples of several processes follow one another; `runs_by_process` says where each begins.
    """
    latency = measured.latency
    summary, series = summarise(latency.samples_ms), latency.series
    images_per_second = measured.batch_size * 1000 / summary.mean_ms
    interval = median_interval_of_processes(series)
    return Timing(
        source="measured",
        input_shape=measured.input_shape,
        num_processes=len(series),
        runs_by_process=[len(one) for one in series],
        **{**vars(summary), "ci95_median_ms": None if interval is None else list(interval)},
        ci95_half_width_share=interval_share(interval, summary.median_ms),
        ci95_target_half_width_share=TARGET_HALF_WIDTH[device_kind],
        fps=images_per_second,
        images_per_second=images_per_second,
        warmup_runs=len(latency.warmup_ms),
        stop_reason=latency.stop_reason,
        notes=latency.notes,
        samples_ms=latency.samples_ms,
        warmup_ms=latency.warmup_ms,
    )


def memory_block(measured: BatchMeasurement) -> Memory:
    """MiB under the names users know, exact bytes beside them."""
    activation, noise = measured.activation_bytes, measured.noise_bytes
    reserved = measured.reserved_peak_bytes
    return Memory(
        source="measured",
        input_shape=measured.input_shape,
        num_runs=len(measured.latency.samples_ms) + len(measured.latency.warmup_ms),
        kind=measured.memory_kind,
        before_mb=measured.before_bytes / MIB,
        after_mb=measured.after_bytes / MIB,
        peak_mb=measured.peak_bytes / MIB,
        activation_mb=activation / MIB,
        peak_reserved_mb=None if reserved is None else reserved / MIB,
        before_bytes=measured.before_bytes,
        after_bytes=measured.after_bytes,
        peak_bytes=measured.peak_bytes,
        activation_bytes=activation,
        noise_bytes=noise,
        activation_within_noise=not measured.memory_is_exact and activation <= noise,
        peak_reserved_bytes=reserved,
        cold_peak_bytes=measured.cold_peak_bytes,
        warm_peak_bytes=measured.warm_peak_bytes,
    )


def perceptual_metric_block(measured: MetricMeasurement, device_kind: str) -> PerceptualMetric:
    """The cost of one LPIPS comparison of two images, whatever its value."""
    return PerceptualMetric(
        source="measured",
        metric="lpips",
        backbone="alex, random weights: the cost is right, the value would mean nothing",
        input_shape=measured.input_shape,
        num_runs=len(measured.latency.samples_ms),
        total_parameters=measured.parameters,
        macs=measured.macs,
        flops=2 * measured.macs,
        timing=timing_block(measured, device_kind),
    )


def batch_block(measured: BatchMeasurement, device_kind: str) -> MeasuredBatch:
    """One measured batch size."""
    return MeasuredBatch(
        source="measured",
        batch_size=measured.batch_size,
        input_shape=measured.input_shape,
        num_runs=len(measured.latency.samples_ms),
        attention=measured.attention,
        timing=timing_block(measured, device_kind),
        memory=memory_block(measured),
    )


def cold_spike(what: str, cold_bytes: int, warm_bytes: int) -> str | None:
    """What is to be said of a first peak on a GPU that lies well above the later ones; None where it does not."""
    if cold_bytes <= warm_bytes * (1 + COLD_SPIKE_SHARE):
        return None
    return (
        f"{what} peaked at {cold_bytes / MIB:,.0f} MiB, the later ones at {warm_bytes / MIB:,.0f}: "
        "cuDNN tried algorithms; the first figure must fit"
    )


def measurement_warnings(measured: BatchMeasurement, device_kind: str) -> list[ProfileWarning]:
    """What the reader of this batch size must know."""
    batch = measured.batch_size
    found = [
        ProfileWarning(f"timing_{kind.value}", f"batch {batch}: {TIMING_WORDS[kind]}", batch)
        for kind in process_warnings(measured.latency.series)
    ]
    if device_kind == "cuda":
        spike = cold_spike("the first runs", measured.cold_peak_bytes, measured.warm_peak_bytes)
        if spike is not None:
            found.append(ProfileWarning("memory_cold_spike", f"batch {batch}: {spike}", batch))
    culprit = measured.first_nonfinite_module
    if culprit is not None:
        text = f"batch {batch}: the output holds NaN or infinity, made first by module {culprit}"
        found.append(ProfileWarning("nonfinite_output", text, batch))
    return found


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
