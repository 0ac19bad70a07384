"""What is known of one batch size: it ran, or why it did not."""

from __future__ import annotations

from typing import Annotated, Literal, TypeGuard

from pydantic import Field, model_validator

from swinmr_profiling.profiler.record.blocks.figures import (
    Block,
    Bytes,
    Count,
    ErrorKind,
    Measured,
    Mebibytes,
    Milliseconds,
    PerSecond,
    PositiveCount,
    Shape,
)
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.limits import LEAST_RUNS

MIN_RUNS_FOR_INTERVAL = 6
StopReason = Literal["requested", "time_budget", "max_runs", "precise"]


class Expected(Block):
    """What a smaller size promised of this one, before it ran."""

    source: Literal["extrapolated"]
    from_batch: PositiveCount
    latency_ms: Milliseconds
    activation_bytes: Count


class Timing(Measured):
    """Latency of whole batches, from the raw samples beside it. What needs more runs than there were is null."""

    # Processes that measured, one after the other; absent (one) in profiles of earlier versions.
    num_processes: PositiveCount = 1
    # Timed runs of each process; their samples follow one another in samples_ms.
    runs_by_process: list[PositiveCount] | None = Field(None, min_length=1)
    mean_ms: Milliseconds
    std_ms: Milliseconds | None
    min_ms: Milliseconds
    max_ms: Milliseconds
    median_ms: Milliseconds
    p90_ms: Milliseconds | None
    p95_ms: Milliseconds | None
    p99_ms: Milliseconds | None
    iqr_ms: Milliseconds | None
    ci95_median_ms: Annotated[list[Milliseconds], Field(min_length=2, max_length=2)] | None
    ci95_half_width_share: float | None
    # Of each process by itself.
    ci95_target_half_width_share: float
    fps: PerSecond
    images_per_second: PerSecond
    warmup_runs: Count
    stop_reason: StopReason
    notes: list[str]
    samples_ms: list[Milliseconds] = Field(min_length=1)
    warmup_ms: list[Milliseconds]

    @model_validator(mode="after")
    def _few_runs_have_no_spread(self) -> Timing:
        if (self.std_ms is None) != (self.num_runs < LEAST_RUNS["std_ms"]):
            raise ValueError("std_ms is null with fewer than 2 runs, and known from 2 on")
        few = self.num_processes == 1 and self.num_runs < MIN_RUNS_FOR_INTERVAL
        if (self.ci95_median_ms is None) != few:
            raise ValueError(
                "ci95_median_ms is null with fewer than 6 runs of one process, and known otherwise"
            )
        return self


class Memory(Measured):
    """Memory of the forward pass: the allocator's on a GPU, the process's resident memory on a CPU (`kind`)."""

    kind: str
    before_mb: Mebibytes
    after_mb: Mebibytes
    peak_mb: Mebibytes
    activation_mb: float
    peak_reserved_mb: float | None
    before_bytes: Bytes
    after_bytes: Bytes
    peak_bytes: Bytes
    activation_bytes: int
    # |after - before| of resident memory, 0 for an allocator's counters; absent in earlier profiles.
    noise_bytes: Bytes | None = None
    activation_within_noise: bool | None = None
    peak_reserved_bytes: Bytes | None
    cold_peak_bytes: Bytes
    warm_peak_bytes: Bytes


class PerceptualMetric(Block):
    """What one LPIPS comparison of two images costs."""

    source: Literal["measured"]
    metric: Literal["lpips"]
    backbone: str
    input_shape: Shape
    num_runs: PositiveCount
    total_parameters: Count
    macs: Count
    flops: Count
    timing: Timing


class MeasuredBatch(Block):
    """A batch size that ran."""

    source: Literal["measured"]
    batch_size: PositiveCount
    input_shape: Shape
    num_runs: PositiveCount
    # The way SwinIR's attention went (models/swin/attention.py); null for other networks.
    attention: str | None = None
    timing: Timing
    memory: Memory
    expected: Expected | None = None
    # The training step of this batch size. Never to be confused with the inference figures beside it.
    training: TrainingRun | TrainingFailure | None = None


class FailedBatch(Block):
    """A batch size that did not run, and why."""

    error: ErrorKind
    detail: str = Field(min_length=1)
    batch_size: PositiveCount
    input_shape: Shape
    expected: Expected | None = None
    training: TrainingRun | TrainingFailure | None = None


Batch = MeasuredBatch | FailedBatch


def ran(size: Batch) -> TypeGuard[MeasuredBatch]:
    """Whether it has a latency; of the original script's sizes a median may be missing."""
    return isinstance(size, MeasuredBatch) and size.timing.median_ms is not None


def why_not(size: Batch) -> tuple[str, str]:
    """Kind and detail of what did not run."""
    return (size.error, size.detail) if isinstance(size, FailedBatch) else ("no timing", "no detail")
