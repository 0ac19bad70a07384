"""Predicted memory of training: for each setting, what a batch needs before libraries' workspaces and context."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from swinmr_profiling.profiler.record.blocks.figures import (
    BatchKey,
    Block,
    Bytes,
    Checkpointing,
    MemoryCategory,
    PatchSize,
    PositiveBytes,
    PositiveCount,
    Precision,
    Sha256,
    Shape,
)


class PredictedSize(Block):
    """Peaks of one batch size, without the libraries' workspaces and without the context."""

    live_bytes: PositiveBytes
    allocated_bytes: PositiveBytes
    reserved_bytes: PositiveBytes
    # Replayed for the sizes asked for, in the config's own setting.
    reserved_expandable_bytes: Bytes | None


PredictedSizes = Annotated[dict[BatchKey, PredictedSize], Field(min_length=1)]


class MemoryPeak(Block):
    """Where in the step the peak lies, and what it is made of."""

    batch_size: PositiveCount
    phase: str
    operator: str
    by_category: dict[MemoryCategory, Bytes]


class PackedAllocations(Block):
    """What any batch size is replayed from (profiler/allocator/allocation_order.py)."""

    sizes: str
    order: str
    # Null in files of versions that knew no workspaces of convolutions.
    optional: str | None = None


class PredictedValidation(Block):
    """The validation batch that follows the step."""

    input_shape: Shape
    allocated_bytes: PositiveBytes
    reserved_bytes: PositiveBytes


class AffineTerms(Block):
    """bytes = fixed + per sample x batch."""

    fixed_bytes: int
    bytes_per_sample: int


class TermsHold(Block):
    """The batch sizes that the affine terms hold for."""

    from_batch: PositiveCount
    to_batch: PositiveCount


Shares = Annotated[list[float], Field(min_length=2, max_length=2)]


Layers = Literal["workspace", "attention", "convolution", "other"]


class PeakBasis(Block):
    """What a predicted peak rests on.

    layers: a convolution's workspace at the peak; a network with attention; one with convolutions; another.
    cudnn_benchmark: whether the run sets it.
    """

    precision: Precision
    layers: Layers
    operator: str
    # Of the peak: what it is above the peak of convolutions without workspaces.
    workspace_share: Annotated[float, Field(ge=0, le=1)]
    cudnn_benchmark: bool
    # Rules at this peak that no GPU has confirmed.
    untested: list[str]


class RestsOn(PeakBasis):
    """What the peak rests on, and how far a GPU's own figures may lie from the predicted ones because of it."""

    # Of the predicted bytes, down and up.
    shares: dict[Literal["live", "allocated", "reserved", "process"], Shares]
    # Of public records whose network family was left out of the calibration: the share that lies inside. Null: there
    # are none.
    coverage: Annotated[float, Field(ge=0, le=1)] | None
    # How many records that are, and of what; null in files of earlier versions.
    evidence: str | None = None


class MemorySetting(Block):
    """One setting of the training step: precision, checkpointing, patch."""

    precision: Precision
    checkpointing: Checkpointing
    # Names or patterns, where checkpointing is "modules".
    checkpointed_modules: list[str] | None = None
    patch_size: PatchSize
    is_config: bool
    memory_fingerprint: Sha256
    traced_batches: list[PositiveCount] = Field(min_length=1)
    affine_from_batch: PositiveCount | None
    aligned: bool
    # A third traced size had exactly the allocations that the other two promise.
    checked: bool
    not_aligned_because: str | None
    # Null where the allocations are not affine in the batch.
    allocations: PackedAllocations | None
    sizes: PredictedSizes
    peak: MemoryPeak
    terms: dict[MemoryCategory, AffineTerms] | None
    terms_hold: TermsHold | None
    validation: PredictedValidation | None
    ddp_bucket_bytes: Bytes
    # Null in profiles before there was an interval for each network.
    rests_on: RestsOn | None = None
    # What this setting's traces took for granted beside what the whole model does: values of `training.assume`, what a
    # step of the user's own leaves open.
    assumptions: list[str] = Field([])

    @model_validator(mode="after")
    def _replayed_from_a_batch_on(self) -> MemorySetting:
        if self.allocations is not None:
            if self.affine_from_batch is None:
                raise ValueError("affine_from_batch is null, and the allocations are replayed from it on")
            smaller = range(1, self.affine_from_batch)
            missing = next((batch for batch in smaller if str(batch) not in self.sizes), None)
            if missing is not None:
                raise ValueError(f"sizes: {missing} is missing, which is not replayed")
        return self


class PredictedInference(Block):
    """The forward pass alone."""

    sizes: PredictedSizes


class IntervalShares(Block):
    """How far a GPU's own figure may lie from the predicted one, as shares of it."""

    live: Annotated[list[float], Field(min_length=2, max_length=2)]
    reserved: Annotated[list[float], Field(min_length=2, max_length=2)]


class MemoryModel(Block):
    """What the prediction of training memory gave."""

    source: Literal["predicted"]
    memory_fingerprint: Sha256
    torch_version: str
    loss: str
    optimizer: str
    ema: bool
    accumulate: PositiveCount
    settings: list[MemorySetting] = Field(min_length=1)
    inference: PredictedInference | None
    # Of the predicted figure, down and up, for each quantity.
    interval_shares: IntervalShares | None
    assumptions: list[str]
    untested_rules: list[str]

    @model_validator(mode="after")
    def _one_is_the_config_s(self) -> MemoryModel:
        if sum(setting.is_config for setting in self.settings) != 1:
            raise ValueError("not one setting that is the config's")
        return self

    @property
    def config_setting(self) -> MemorySetting:
        """The setting that is the config's own."""
        return next(setting for setting in self.settings if setting.is_config)
