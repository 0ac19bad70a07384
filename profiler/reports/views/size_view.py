"""The batch sizes of a profile, and which of them have figures."""

from __future__ import annotations

from typing import TypeGuard

from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch, MeasuredBatch
from swinmr_profiling.profiler.record.profile import Profile


def sizes_of(profile: Profile) -> tuple[Batch, ...]:
    """From small to large; the single image is batch 1. Each has the batch size that it is named by."""
    blocks = {int(size): block for size, block in profile.batch_profiling.items()}
    if profile.single_image is not None:
        blocks.setdefault(1, profile.single_image)
    return tuple(blocks[size].model_copy(update={"batch_size": size}) for size in sorted(blocks))


def ran(size: Batch) -> TypeGuard[MeasuredBatch]:
    """Whether it has a latency; of the original script's sizes a median may be missing."""
    return isinstance(size, MeasuredBatch) and size.timing.median_ms is not None


def why_not(size: Batch) -> tuple[str, str]:
    """Kind and detail of what did not run."""
    return (size.error, size.detail) if isinstance(size, FailedBatch) else ("no timing", "no detail")
