"""The training step of one batch size: measured where it ran, predicted where it did not."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from swinmr_profiling.profiler.record.blocks.figures import (
    Block,
    Bytes,
    Checkpointing,
    Count,
    ErrorKind,
    MemoryCategory,
    Milliseconds,
    PatchSize,
    PerSecond,
    PositiveCount,
    Precision,
    Shape,
)

Interval = Annotated[list[Bytes], Field(min_length=2, max_length=2)]


class TrainingValidation(Block):
    """The validation batch that follows the step."""

    input_shape: Shape
    allocated_bytes: Bytes | None
    requested_bytes: Bytes | None = None
    reserved_bytes: Bytes | None


class TrainingRun(Block):
    """Memory and time of training steps; what was not measured, or is not predicted, is null."""

    source: Literal["measured", "predicted", "extrapolated"]
    input_shape: Shape
    num_runs: Count
    # What the memory figures are.
    kind: str | None = None
    precision: Precision
    checkpointing: Checkpointing
    patch_size: PatchSize
    accumulate: PositiveCount | None = None
    loss: str | None = None
    peak_bytes: Bytes
    peak_reserved_bytes: Bytes | None
    live_bytes: Bytes | None
    requested_peak_bytes: Bytes | None
    before_bytes: Bytes | None = None
    cold_peak_bytes: Bytes | None
    warm_peak_bytes: Bytes | None = None
    process_bytes: Bytes | None
    device_used_bytes: Bytes | None
    # [low, high] of live_bytes and of peak_reserved_bytes on a GPU.
    live_interval_bytes: Interval | None
    reserved_interval_bytes: Interval | None
    by_category: dict[MemoryCategory, Bytes] | None
    peak_phase: str | None
    peak_operator: str | None
    workspace_bytes: Bytes | None
    context_bytes: Bytes | None
    validation: TrainingValidation | None
    ddp_bucket_bytes: Bytes | None
    steps_run: Count
    step_ms: list[Milliseconds] | None
    images_per_second: PerSecond | None
    retries: Count | None
    out_of_memory: Count | None = None
    expandable_segments: bool | None = None
    assumptions: list[str]

    @model_validator(mode="after")
    def _measured_or_predicted(self) -> TrainingRun:
        measured = self.source == "measured"
        if measured != (self.num_runs > 0) or measured != (self.steps_run > 0):
            raise ValueError("num_runs and steps_run are 0 exactly where nothing ran")
        intervals = (self.live_interval_bytes, self.reserved_interval_bytes)
        if any(measured != (figure is None) for figure in (self.live_bytes, *intervals)):
            raise ValueError("live_bytes and the intervals are of a prediction, and null in a measurement")
        if measured and self.by_category is not None:
            raise ValueError("by_category is of a prediction")
        run_only = (
            self.requested_peak_bytes,
            self.images_per_second,
            self.cold_peak_bytes,
            self.step_ms or None,
        )
        if not measured and any(figure is not None for figure in run_only):
            raise ValueError("step times and an allocator's counters are of a measurement")
        return self


class TrainingFailure(Block):
    """A training step that did not run, and why."""

    error: ErrorKind
    detail: str = Field(min_length=1)
    input_shape: Shape | None = None
    source: Literal["measured", "predicted"]
