"""Which batch size to use, for inference and, per budget of memory, for training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from swinmr_profiling.profiler.record.blocks.figures import (
    Block,
    Bytes,
    Checkpointing,
    Count,
    ErrorKind,
    Milliseconds,
    PatchSize,
    PerSecond,
    PositiveCount,
    Precision,
)


class InferenceRecommendation(Block):
    """The measured size with the highest throughput."""

    batch_size: PositiveCount
    images_per_second: PerSecond
    latency_ms: Milliseconds
    peak_bytes: Bytes
    source: Literal["measured"]
    verified: Literal[True]
    reason: str
    purpose: str


class BudgetBlock(Block):
    """The memory of one GPU that a training run may take."""

    name: str
    total_bytes: Bytes
    reserved_elsewhere_bytes: Bytes
    headroom_share: float = Field(ge=0, lt=1)
    usable_bytes: Bytes
    context_bytes: Bytes
    workspace_bytes: Bytes


class Lever(Block):
    """Another setting, and the largest batch that it would allow."""

    precision: Precision
    checkpointing: Checkpointing
    patch_size: PatchSize
    is_config: bool
    largest_batch: PositiveCount | None
    needed_bytes: Bytes
    source: Literal["predicted", "extrapolated"]


class TrainingTime(Block):
    """What measured steps say of a whole training."""

    source: Literal["measured"]
    images_per_second_per_device: PerSecond
    optimizer_step_ms: Milliseconds
    seconds_per_100000_steps: float = Field(ge=0)
    training_samples: PositiveCount | None
    seconds_per_epoch: float | None = Field(ge=0)


class FitsSlower(Block):
    """The largest batch that lives only near the card's limit: no recommendation.

    flushes: how often the traced steps give cached memory back to the device. slower_convolutions: how many of them run
    without their workspace.
    """

    batch_size: PositiveCount
    flushes: Count
    slower_convolutions: Count


class TrainingRecommendation(Block):
    """For one budget: the batch per device, or why there is none (`failure`, `reason`)."""

    budget: BudgetBlock
    precision: Precision | None
    checkpointing: Checkpointing | None
    patch_size: PatchSize
    target_batch: PositiveCount | None
    batch_size: PositiveCount | None
    largest_batch: PositiveCount | None
    accumulate: PositiveCount | None
    global_batch: PositiveCount | None
    devices: PositiveCount
    needed_bytes: Bytes | None
    source: Literal["measured", "predicted", "extrapolated"]
    verified: bool
    failure: Literal["nothing_fits", "failed_measurement", "not_run"] | None
    reason: str = Field(min_length=1)
    time: TrainingTime | None
    levers: list[Lever]
    # Null where no larger batch fits in this way, or where it cannot be replayed.
    fits_slower: FitsSlower | None = None

    @model_validator(mode="after")
    def _none_has_a_failure(self) -> TrainingRecommendation:
        none = self.batch_size is None
        if none != (self.failure is not None):
            raise ValueError("failure says why there is no batch_size, and is null where there is one")
        if none != (self.global_batch is None) or none != (self.accumulate is None):
            raise ValueError("global_batch and accumulate are null exactly where batch_size is")
        if self.verified and (none or self.source != "measured"):
            raise ValueError("only a batch_size that ran is verified")
        return self


class Trial(Block):
    """One try of the search on a GPU, beside what was available and expected then.

    verdict: "fits", "too_large", "failed_measurement", or the kind of failure.
    """

    batch_size: PositiveCount
    available_bytes: Bytes | None = None
    usable_bytes: Bytes | None = None
    expected_bytes: Bytes | None = None
    peak_bytes: Bytes | None = None
    steps_run: Count
    retries: Count | None = None
    verdict: str
    detail: str | None = None


class Reduction(Block):
    """A step down from a batch that did not fit."""

    from_batch: PositiveCount = Field(alias="from")
    to_batch: Count = Field(alias="to")
    reason: str
    detail: str | None


class BudgetChange(Block):
    """Memory that others took or gave back while the search ran."""

    before_trial: PositiveCount
    from_bytes: Bytes
    to_bytes: Bytes


class UnsupportedBatch(Block):
    """A batch that kernels refuse whatever the memory."""

    batch_size: PositiveCount
    largest_that_works: PositiveCount | None
    detail: str


class SearchFailure(Block):
    """What ended a failed search."""

    error: ErrorKind
    detail: str


SearchOutcome = Literal["found", "nothing_fits", "no_free_memory", "failed"]


class TrainingSearch(Block):
    """The trials of the search for a training batch on this GPU.

    batch_size: the choice, which has run and fits what was usable in the end; null where there is none. failure: what
    ended a failed search. unsupported: the smallest batch that kernels refused whatever the memory.
    """

    outcome: SearchOutcome
    batch_size: PositiveCount | None
    reason: str
    requested: PositiveCount | None = None
    largest_that_ran: PositiveCount | None = None
    headroom_share: float | None = Field(None, ge=0)
    available_bytes: Bytes | None = None
    usable_bytes: Bytes | None = None
    trials: list[Trial]
    steps_run: Count
    # Every step down from a batch that did not fit.
    reductions: list[Reduction] | None = None
    budget_changes: list[BudgetChange] | None = None
    unsupported: UnsupportedBatch | None = None
    failure: SearchFailure | None = None
    source: Literal["measured"]
    # Of this GPU, by other processes, when it was last read.
    held_by_others_bytes: Bytes | None


class Recommendation(Block):
    """One entry of `training` per budget."""

    inference: InferenceRecommendation | None
    training: list[TrainingRecommendation]
    search: TrainingSearch | None = None
