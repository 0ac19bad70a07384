"""Training steps that ran on a GPU, read from a profile's batch_profiling, and whether they can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from swinmr_profiling.profiler.batch_size.inference_recommendation import KNEE_SHARE
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import Lever
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.device_memory import process_needs


@dataclass(frozen=True)
class MeasuredSize:
    """One batch size whose training steps and validation ran.

    Attributes:
        peak_bytes: the allocator's peak, which must grow with the batch.
        reserved_bytes: by the allocator at most, validation included.
        process_bytes: what the driver says the process held; None where it does not.
        context_bytes: outside the allocator; None where nobody could tell.
        ddp_bucket_bytes: what each of several devices would hold besides.
        retries: how often the allocator had to give cached memory back; above 0 it fitted by luck.
        images_per_second: of one device; None where steps were not timed.
    """

    batch_size: int
    peak_bytes: int
    reserved_bytes: int
    process_bytes: int | None
    context_bytes: int | None
    ddp_bucket_bytes: int
    retries: int
    images_per_second: float | None

    def needed_bytes(self, assumed_context_bytes: int, devices: int = 1) -> int:
        """Bytes of each GPU; the context as assumed where it is not known."""
        buckets = self.ddp_bucket_bytes if devices > 1 else 0
        return buckets + process_needs(
            self.reserved_bytes, self.process_bytes, self.context_bytes, assumed_context_bytes
        )


@dataclass(frozen=True)
class MeasuredSeries:
    """All sizes of one setting.

    Attributes:
        setting: whose precision, checkpointing and patch_size they have; None where nothing ran.
        sizes: what ran, ascending.
        failures: batch size -> (kind, detail) of what did not.
        fault: why the series is not a measurement, or None.
    """

    setting: MemorySetting | TrainingRun | None
    sizes: tuple[MeasuredSize, ...]
    failures: dict[int, tuple[str, str]]
    fault: str | None

    @property
    def smallest_out_of_memory(self) -> int | None:
        return min((size for size, (kind, _) in self.failures.items() if kind == "OOM"), default=None)

    @property
    def smallest_unsupported(self) -> int | None:
        return min((size for size, (kind, _) in self.failures.items() if kind == "unsupported"), default=None)


def measured_series(
    measured: Mapping[int, TrainingRun | TrainingFailure], setting: MemorySetting | None = None
) -> MeasuredSeries | None:
    """The measured training blocks of a setting (None: of the first that ran), or None where nothing was tried.

    measured: batch size -> its block; what was predicted is none.
    """
    blocks = {size: block for size, block in measured.items() if block.source == "measured"}
    of = setting or next((block for block in blocks.values() if isinstance(block, TrainingRun)), None)
    sizes: list[MeasuredSize] = []
    failures: dict[int, tuple[str, str]] = {}
    for size, block in sorted(blocks.items()):
        if isinstance(block, TrainingFailure):
            failures[size] = (block.error, block.detail)
        elif of is not None and setting_of(block) == setting_of(of):
            # One device measures none of what several hold: the prediction knows it.
            sizes.append(_measured_size(size, block, block.ddp_bucket_bytes or of.ddp_bucket_bytes or 0))
    return MeasuredSeries(of, tuple(sizes), failures, memory_fault(sizes)) if sizes or failures else None


def setting_of(block: MemorySetting | TrainingRun | Lever) -> tuple[str, str, list[int] | None]:
    """What tells the settings of a profile apart."""
    return block.precision, block.checkpointing, block.patch_size


def _measured_size(size: int, block: TrainingRun, ddp_bucket_bytes: int) -> MeasuredSize:
    validation = 0 if block.validation is None else block.validation.reserved_bytes or 0
    step_ms = statistics.median(block.step_ms) if block.step_ms else None
    rate = block.images_per_second
    return MeasuredSize(
        batch_size=size,
        peak_bytes=block.peak_bytes,
        reserved_bytes=max(block.peak_reserved_bytes or block.peak_bytes, validation),
        process_bytes=block.process_bytes,
        context_bytes=block.context_bytes,
        ddp_bucket_bytes=ddp_bucket_bytes,
        retries=block.retries or 0,
        images_per_second=size * 1000 / step_ms if rate is None and step_ms else rate,
    )


def memory_fault(sizes: Sequence[MeasuredSize]) -> str | None:
    """Names the first size that took less memory than a smaller one: something else was measured than the batch."""
    for smaller, larger in pairwise(sizes):
        if larger.peak_bytes < smaller.peak_bytes:
            return (
                f"batch {larger.batch_size} took {larger.peak_bytes:,} bytes, less than the {smaller.peak_bytes:,} of "
                f"batch {smaller.batch_size}"
            )
    return None


def knee_batch(sizes: Iterable[MeasuredSize]) -> int | None:
    """The smallest batch within 3 % of the best throughput; None where fewer than two sizes were timed."""
    rates = {size.batch_size: size.images_per_second for size in sizes if size.images_per_second is not None}
    if len(rates) < 2:
        return None
    best = max(rates.values())
    return min(size for size, rate in rates.items() if rate >= best * (1 - KNEE_SHARE))
