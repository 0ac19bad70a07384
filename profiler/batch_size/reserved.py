"""What the allocator reserves for the training step of one setting at any batch: replayed, or else interpolated.

All sizes are Python integers: a batch of three billion is computed right, and refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from swinmr_profiling.profiler.allocator.allocation_order import unpacked
from swinmr_profiling.profiler.allocator.reserved_memory import ReservedMemory
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting

# The settings of a few profiles: a replay is worth keeping from one budget to the next.
KEPT_RUNS = 64
NOTHING_KEPT = "the profile keeps no allocations to replay; run scripts/profile_model.py again"


def reserved_of(setting: MemorySetting) -> Replayed | Interpolated:
    """Of a setting of a memory model. Raises AllocationOrderError where what it keeps is damaged."""
    kept = setting.allocations
    if kept is None or setting.affine_from_batch is None:
        return interpolated(setting)
    return Replayed(setting, setting.affine_from_batch, _memory(kept.sizes, kept.order, kept.optional))


@lru_cache(maxsize=KEPT_RUNS)
def _memory(sizes: str, order: str, optional: str | None) -> ReservedMemory:
    return ReservedMemory(unpacked({"sizes": sizes, "order": order, "optional": optional}))


def interpolated(setting: MemorySetting) -> Interpolated:
    """From the table of a setting alone."""
    table = {int(size): (row.live_bytes, row.reserved_bytes) for size, row in setting.sizes.items()}
    return Interpolated(table, setting.not_aligned_because or NOTHING_KEPT)


class Replayed:
    """Every batch by its own replay; the first few, whose allocations may be others, as they were traced."""

    source: Literal["predicted"] = "predicted"

    def __init__(self, setting: MemorySetting, affine_from_batch: int, memory: ReservedMemory) -> None:
        self._memory = memory
        self._traced = {
            batch: setting.sizes[str(batch)].reserved_bytes for batch in range(1, affine_from_batch)
        }

    def reserved_bytes(self, batch_size: int) -> int:
        """Bytes of the allocator, workspaces and context apart. Raises ValueError below batch 1."""
        _check(batch_size)
        traced = self._traced.get(batch_size)
        return self._memory.reserved_bytes(batch_size) if traced is None else traced

    def fits(self, batch_size: int, limit_bytes: int) -> bool:
        """Whether no more than the limit is reserved."""
        traced = self._traced.get(batch_size)
        return self._memory.fits(batch_size, limit_bytes) if traced is None else traced <= limit_bytes

    def last_possible(self, limit_bytes: int, largest: int) -> int:
        """A batch, at most `largest`, beyond which none fits; 0 where none does at all."""
        return max(self._memory.last_possible(limit_bytes, largest), len(self._traced))


class Row(NamedTuple):
    """Of one batch size."""

    live_bytes: int
    reserved_bytes: int


class Interpolated:
    """From a table of sizes alone: exact at its sizes, and between and beyond them a guess that can be a few off."""

    source: Literal["extrapolated"] = "extrapolated"

    def __init__(self, table: Mapping[int, tuple[int, int]], why: str = NOTHING_KEPT) -> None:
        """table: batch -> (live bytes, reserved bytes). why: there is no replay. Its `sizes` are ascending."""
        self._rows = {size: Row(*figures) for size, figures in table.items()}
        self.sizes = sorted(table)
        self.why = why

    def reserved_bytes(self, batch_size: int) -> int:
        """At a size of the table its figure.

        Between two: live bytes on the straight line, which lies above them where they are a maximum of functions
        affine in the batch, and the larger of the neighbours' (reserved - live). Beyond the table the last slope goes
        on, with the larger of the last two reserved / live. Below it its smallest size stands in.
        """
        _check(batch_size)
        exact = self._rows.get(batch_size)
        if exact is not None:
            return exact.reserved_bytes
        if batch_size < self.sizes[0]:
            return self._rows[self.sizes[0]].reserved_bytes
        if batch_size > self.sizes[-1]:
            return self._beyond(batch_size)
        place = next(place for place, size in enumerate(self.sizes) if size > batch_size)
        below, above = self.sizes[place - 1 : place + 1]
        low, high = self._rows[below], self._rows[above]
        rise = (high.live_bytes - low.live_bytes) * (batch_size - below)
        live = low.live_bytes + _ceiling(rise, above - below)
        return live + max(row.reserved_bytes - row.live_bytes for row in (low, high))

    def fits(self, batch_size: int, limit_bytes: int) -> bool:
        return self.reserved_bytes(batch_size) <= limit_bytes

    def last_possible(self, limit_bytes: int, largest: int) -> int:
        # Inside the table a size may fit though the line just below it does not; beyond it the line only rises.
        last = self.sizes[-1]
        beyond = range(last + 1, largest + 1)
        return min(largest, last + bisect_right(beyond, limit_bytes, key=self.reserved_bytes))

    def _beyond(self, batch_size: int) -> int:
        last = self._rows[self.sizes[-1]]
        if len(self.sizes) == 1:
            return _ceiling(last.reserved_bytes * batch_size, self.sizes[-1])
        before = self._rows[self.sizes[-2]]
        rise = max(last.live_bytes - before.live_bytes, 0) * (batch_size - self.sizes[-1])
        live = last.live_bytes + _ceiling(rise, self.sizes[-1] - self.sizes[-2])
        return max(_ceiling(live * row.reserved_bytes, row.live_bytes) for row in (before, last))


def _check(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch {batch_size}: at least 1")


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
