"""The training side of a profile: sizes whose training step is known, and the batch to train with on each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swinmr_profiling.profiler.record.blocks import recommended as written
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun

AnySetting = MemorySetting | TrainingRecommendation | written.Lever


@dataclass(frozen=True)
class TrainingSize:
    """`batch_profiling[N].training`: one batch size of the training step; bytes."""

    source: str
    error: str | None = None
    detail: str | None = None
    precision: str | None = None
    checkpointing: str | None = None
    input_shape: tuple[int, ...] | None = None
    peak_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    process_bytes: int | None = None
    live_interval_bytes: Sequence[int] | None = None
    reserved_interval_bytes: Sequence[int] | None = None
    images_per_second: float | None = None
    steps_run: int | None = None


@dataclass(frozen=True)
class Lever:
    """The largest batch in another setting; None where nothing fits."""

    setting: str
    largest_batch: int | None
    source: str


@dataclass(frozen=True)
class Recommendation:
    """`recommendation.training[i]`: the batch size to train with on one GPU; None where none can be named."""

    name: str
    total_bytes: int
    usable_bytes: int
    context_bytes: int
    workspace_bytes: int
    setting: str
    precision: str | None
    patch: str
    batch_size: int | None
    largest_batch: int | None
    global_batch: int | None
    needed_bytes: int | None
    source: str
    verified: bool
    reason: str
    levers: tuple[Lever, ...]


def setting_text(block: AnySetting) -> str:
    """ "fp32, checkpointing none, patch 96 x 96"."""
    return f"{block.precision}, checkpointing {block.checkpointing}, {patch_text(block)}"


def patch_text(block: AnySetting) -> str:
    """ "patch 96 x 96" or "whole image"."""
    patch = block.patch_size
    return "whole image" if patch is None else f"patch {' x '.join(map(str, patch))}"


def read_training(block: TrainingRun | TrainingFailure | None) -> TrainingSize | None:
    if block is None:
        return None
    if isinstance(block, TrainingFailure):
        shape = None if block.input_shape is None else tuple(block.input_shape)
        return TrainingSize(block.source, error=block.error, detail=block.detail, input_shape=shape)
    return TrainingSize(
        source=block.source,
        precision=block.precision,
        checkpointing=block.checkpointing,
        input_shape=tuple(block.input_shape),
        peak_bytes=block.peak_bytes,
        peak_reserved_bytes=block.peak_reserved_bytes,
        process_bytes=block.process_bytes,
        live_interval_bytes=block.live_interval_bytes,
        reserved_interval_bytes=block.reserved_interval_bytes,
        images_per_second=block.images_per_second,
        steps_run=block.steps_run,
    )


def read_recommendations(recommendation: written.Recommendation | None) -> tuple[Recommendation, ...]:
    return () if recommendation is None else tuple(map(_recommendation, recommendation.training))


def _recommendation(entry: TrainingRecommendation) -> Recommendation:
    budget = entry.budget
    return Recommendation(
        name=budget.name,
        total_bytes=budget.total_bytes,
        usable_bytes=budget.usable_bytes,
        context_bytes=budget.context_bytes,
        workspace_bytes=budget.workspace_bytes,
        setting=setting_text(entry),
        precision=entry.precision,
        patch=patch_text(entry),
        batch_size=entry.batch_size,
        largest_batch=entry.largest_batch,
        global_batch=entry.global_batch,
        needed_bytes=entry.needed_bytes,
        source=entry.source,
        verified=entry.verified,
        reason=entry.reason,
        levers=tuple(Lever(setting_text(one), one.largest_batch, one.source) for one in entry.levers),
    )
