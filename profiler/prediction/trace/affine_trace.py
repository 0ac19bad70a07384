"""Every allocation is affine in the batch size: two traces give all others of the same regime, to the byte.

What is not affine is the peak, a maximum over sums of them: it is looked up in a synthesised trace, never fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace


class NotAlignedError(ValueError):
    """Two traces are not of one regime: they allocate other things, or in another order, or not affinely."""


@dataclass(frozen=True)
class AffineTrace:
    """Sizes `intercepts + slopes x batch size`, in the events of `base`.

    slopes, intercepts: int64 (allocations,), bytes per sample and bytes. moved_slopes: of what `base` moves to the host
    and from there, bytes per sample.
    """

    base: Trace
    slopes: np.ndarray
    intercepts: np.ndarray
    moved_slopes: tuple[int, ...] = (0, 0)

    def at(self, batch_size: int) -> Trace:
        """The trace of a batch size that was not run. Raises NotAlignedError where a size would be negative."""
        # Python's integers decide about overflow; numpy's would wrap around.
        largest = int(self.slopes.max(initial=0)) * batch_size + int(self.intercepts.max(initial=0))
        if largest * len(self.slopes) > np.iinfo(np.int64).max:
            raise OverflowError(f"a batch of {batch_size} needs more bytes than 64 bits can count")
        sizes = self.intercepts + self.slopes * batch_size
        if (sizes <= 0).any():
            raise NotAlignedError(f"batch {batch_size} is outside the range in which allocations are affine")
        further = batch_size - self.base.batch_size
        moved = [
            size + slope * further
            for size, slope in zip(self.base.moved_bytes, self.moved_slopes, strict=True)
        ]
        return replace(self.base, batch_size=batch_size, sizes=sizes, moved_bytes=moved)

    def order(self) -> AllocationOrder:
        """What a recommendation replays: the sizes of every batch and the events."""
        optional = self.base.categories == CATEGORIES.index("workspaces")
        streams = self.base.streams()
        return AllocationOrder(
            self.base.events, self.intercepts, self.slopes, optional, streams if streams.any() else None
        )

    def explains(self, other: Trace) -> bool:
        """Whether a directly traced batch size has these very allocations, to the byte."""
        return same_events(self.base, other) and np.array_equal(self.at(other.batch_size).sizes, other.sizes)


def same_events(first: Trace, second: Trace) -> bool:
    """Whether two traces make and release the same allocations, by the same operators, in the same order."""
    return (
        first.operator_names == second.operator_names
        and np.array_equal(first.operators, second.operators)
        and np.array_equal(first.events, second.events)
    )


def align(first: Trace, second: Trace) -> AffineTrace:
    """The affine trace through two batch sizes. Raises NotAlignedError."""
    if not same_events(first, second):
        raise NotAlignedError(
            f"batch {first.batch_size} and batch {second.batch_size} do not run the same operators"
        )
    difference = second.batch_size - first.batch_size
    slopes, rest = np.divmod(second.sizes - first.sizes, difference)
    if rest.any():
        raise NotAlignedError(
            f"allocations are not affine between batch {first.batch_size} and batch {second.batch_size}"
        )
    if (slopes < 0).any():
        # Sooner or later it would be negative; and what is alive must grow with the batch, which a search relies on.
        raise NotAlignedError(
            f"an allocation of batch {second.batch_size} is smaller than of batch {first.batch_size}"
        )
    moved = tuple(
        (other - one) // difference for one, other in zip(first.moved_bytes, second.moved_bytes, strict=True)
    )
    return AffineTrace(first, slopes, first.sizes - slopes * first.batch_size, moved)
