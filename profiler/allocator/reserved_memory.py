"""How much memory the allocator reserves for a training run, at any batch size: replayed, and as fast as Python can.

The same allocator as caching_allocator.py with its default settings and no limit, where segments are never given back,
so that what is reserved in the end is the peak. Nothing else is kept track of, which makes it three times faster: a
recommendation replays hundreds of batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import numpy as np

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder
from swinmr_profiling.profiler.allocator.caching_allocator import (
    LARGE_SEGMENT_BYTES,
    MIN_BLOCK_BYTES,
    OWN_SEGMENT_BYTES,
    SEGMENT_GRANULARITY_BYTES,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
)

# Everything below is counted in the smallest block.
SMALL_REQUEST = SMALL_REQUEST_BYTES // MIN_BLOCK_BYTES
SMALL_SEGMENT = SMALL_SEGMENT_BYTES // MIN_BLOCK_BYTES
LARGE_SEGMENT = LARGE_SEGMENT_BYTES // MIN_BLOCK_BYTES
OWN_SEGMENT = OWN_SEGMENT_BYTES // MIN_BLOCK_BYTES
GRANULARITY = SEGMENT_GRANULARITY_BYTES // MIN_BLOCK_BYTES
# A free block is one number, its size above its address, so that numbers are in the order of best fit.
ADDRESS_BITS = 64
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


class ReservedMemory:
    """Of one run; replays are kept."""

    def __init__(self, order: AllocationOrder) -> None:
        self._order = order
        self._numbers = np.abs(order.events) - 1
        self._made = order.events > 0
        self._reserved: dict[int, int] = {}
        # Of replays that stopped early: at least so much is reserved.
        self._at_least: dict[int, int] = {}

    def reserved_bytes(self, batch_size: int) -> int:
        """Bytes that the allocator holds in the end, workspaces and context apart."""
        self._replay(batch_size, None)
        return self._reserved[batch_size]

    def fits(self, batch_size: int, limit_bytes: int) -> bool:
        """Whether no more than the limit is reserved; a replay that exceeds it goes no further."""
        if batch_size not in self._reserved and self._at_least.get(batch_size, 0) <= limit_bytes:
            self._replay(batch_size, limit_bytes)
        return self._reserved.get(batch_size, limit_bytes + 1) <= limit_bytes

    def live_bytes(self, batch_size: int) -> int:
        """Most bytes alive at once, setup included: no more than are reserved, and never less for a larger batch."""
        sizes = self._blocks(batch_size)[self._numbers]
        return int(np.cumsum(np.where(self._made, sizes, -sizes)).max(initial=0)) * MIN_BLOCK_BYTES

    def last_possible(self, limit_bytes: int, largest: int) -> int:
        """The largest batch whose live bytes are within the limit, 0 where batch 1's are not: no larger one fits."""
        return bisect_right(range(1, largest + 1), limit_bytes, key=self.live_bytes)

    def _blocks(self, batch_size: int) -> np.ndarray:
        """(allocations,) in smallest blocks, rounded up."""
        return np.maximum(-(-self._order.sizes(batch_size) // MIN_BLOCK_BYTES), 1)

    def _pools(self, small: np.ndarray) -> list[tuple[bool, np.ndarray]]:
        """Of each pool whether it is of small segments, and which events are its own. small: bool (events,)."""
        if self._order.streams is None:
            return [(False, ~small), (True, small)]
        of_event = self._order.streams[self._numbers]
        streams = (of_event == stream for stream in np.unique(of_event))
        return [pool for mine in streams for pool in ((False, mine & ~small), (True, mine & small))]

    def _replay(self, batch_size: int, limit_bytes: int | None) -> None:
        if batch_size in self._reserved:
            return
        blocks = self._blocks(batch_size)
        sizes = blocks.tolist()
        limit = None if limit_bytes is None else limit_bytes // MIN_BLOCK_BYTES
        total = 0
        # Pools never exchange a block, so that each can be replayed by itself.
        for is_small, mine in self._pools((blocks <= SMALL_REQUEST)[self._numbers]):
            left = None if limit is None else limit - total
            total += _reserve(self._order.events[mine].tolist(), sizes, is_small, left)
            if limit is not None and total > limit:
                self._at_least[batch_size] = total * MIN_BLOCK_BYTES
                return
        self._reserved[batch_size] = total * MIN_BLOCK_BYTES


def _reserve(events: list[int], sizes: list[int], small: bool, limit: int | None) -> int:
    """What one pool takes from the device; stops where that is more than the limit.

    Plain loops and dictionaries, without a function call of its own per event. Segments lie apart by an address that
    nobody has, so that blocks of two segments are never joined.
    """
    least_rest = 1 if small else SMALL_REQUEST + 1
    free: list[int] = []  # ascending: size and address
    end_of: dict[int, int] = {}  # of free blocks: end by start
    start_of: dict[int, int] = {}  # and start by end
    starts, ends = [0] * len(sizes), [0] * len(sizes)
    reserved, address = 0, 1
    for event in events:
        if event > 0:
            size = sizes[event - 1]
            place = bisect_left(free, size << ADDRESS_BITS)
            if place < len(free):
                start = free.pop(place) & ADDRESS_MASK
                end = end_of.pop(start)
                del start_of[end]
            else:
                if small:
                    segment = SMALL_SEGMENT
                else:
                    segment = LARGE_SEGMENT if size < OWN_SEGMENT else -(-size // GRANULARITY) * GRANULARITY
                reserved += segment
                if limit is not None and reserved > limit:
                    return reserved
                start, end = address, address + segment
                address = end + 1
            split = start + size
            if end - split >= least_rest:
                insort(free, (end - split) << ADDRESS_BITS | split)
                end_of[split] = end
                start_of[end] = split
                end = split
            starts[event - 1], ends[event - 1] = start, end
        else:
            start, end = starts[-event - 1], ends[-event - 1]
            before, after = start_of.pop(start, None), end_of.pop(end, None)
            if before is not None:
                del free[bisect_left(free, (start - before) << ADDRESS_BITS | before)]
                start = before
            if after is not None:
                del free[bisect_left(free, (after - end) << ADDRESS_BITS | end)]
                end = after
            insort(free, (end - start) << ADDRESS_BITS | start)
            end_of[start] = end
            start_of[end] = start
    return reserved
