"""PyTorch's caching allocator, replayed: what a sequence of allocations makes of `allocated` and `reserved` memory.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of PyTorch 2.9 to 2.14 (one stream, default
settings). Sizes are bytes; addresses are positions in the segment, which is all that best fit asks for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

KIB, MIB = 2**10, 2**20
# Every request is rounded up to this.
MIN_BLOCK_BYTES = 512
# Requests up to this come from small segments of 2 MiB, larger ones from a pool of their own.
SMALL_REQUEST_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
# Requests below this share segments of 20 MiB; above, a segment is the request rounded up to 2 MiB.
OWN_SEGMENT_BYTES = 10 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
SEGMENT_GRANULARITY_BYTES = 2 * MIB


class SimulatedOutOfMemoryError(MemoryError):
    """The replay asked for more than the limit, even after cached segments were given back."""

    def __init__(self, requested_bytes: int, reserved_bytes: int, limit_bytes: int) -> None:
        self.requested_bytes = requested_bytes
        super().__init__(
            f"{requested_bytes} bytes more than the {reserved_bytes} reserved do not fit in {limit_bytes}"
        )


class _Block:
    """A stretch of a segment. Free blocks are ordered by (size, segment, offset), as the allocator orders them."""

    __slots__ = ("free", "mapped", "next", "offset", "previous", "segment", "size", "small")

    def __init__(self, segment: int, offset: int, size: int, small: bool, mapped: bool = True) -> None:
        self.segment, self.offset, self.size, self.small = segment, offset, size, small
        self.previous: _Block | None = None
        self.next: _Block | None = None
        self.free = False
        self.mapped = mapped

    def key(self) -> tuple[int, int, int]:
        return self.size, self.segment, self.offset


class _Pool:
    """Free blocks of one pool, best fit first."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, int, int]] = []
        self.blocks: dict[tuple[int, int], _Block] = {}

    def add(self, block: _Block) -> None:
        insort(self.keys, block.key())
        self.blocks[block.segment, block.offset] = block

    def remove(self, block: _Block) -> None:
        del self.keys[bisect_left(self.keys, block.key())]
        del self.blocks[block.segment, block.offset]

    def at(self, position: int) -> _Block:
        _, segment, offset = self.keys[position]
        return self.blocks[segment, offset]

    def best_fit(self, size: int) -> int:
        """Position of the smallest free block of at least `size`; len(keys) where there is none."""
        return bisect_left(self.keys, (size, -1, -1))


@dataclass(frozen=True)
class AllocatorUse:
    """Bytes now and at most: `allocated` in blocks handed out, `reserved` in segments taken from the device."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    retries: int


class CachingAllocator:
    """One device's allocator.

    limit_bytes: what segments may take together; None for no limit. expandable: the setting
    `expandable_segments:True`, where each pool is one segment that grows page by page.
    """

    def __init__(self, limit_bytes: int | None = None, expandable: bool = False) -> None:
        self.limit_bytes, self.expandable = limit_bytes, expandable
        self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.retries = 0
        self._pools = {True: _Pool(), False: _Pool()}
        self._segment_bytes: dict[int, int] = {}
        self._next_segment = 0
        # Expandable: the last mapped block and the end of what is mapped, by pool.
        self._tails: dict[bool, _Block | None] = {True: None, False: None}

    def use(self) -> AllocatorUse:
        """The figures so far."""
        return AllocatorUse(
            self.allocated_bytes,
            self.reserved_bytes,
            self.peak_allocated_bytes,
            self.peak_reserved_bytes,
            self.retries,
        )

    def reset_peaks(self) -> None:
        """As torch.cuda.reset_peak_memory_stats: peaks start again from what is in use."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes

    def allocate(self, requested_bytes: int) -> _Block:
        """A block for a request. Raises SimulatedOutOfMemoryError, with the state as it was."""
        size = max(-(-requested_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES, MIN_BLOCK_BYTES)
        small = size <= SMALL_REQUEST_BYTES
        pool = self._pools[small]
        block = self._take_free(pool, size)
        if block is None:
            block = self._grow(small, size)
        remaining = block.size - size
        if remaining >= MIN_BLOCK_BYTES if small or self.expandable else remaining > SMALL_REQUEST_BYTES:
            self._split(pool, block, size)
        block.free = False
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: _Block) -> None:
        """Gives a block back to its pool, joined with free neighbours."""
        self.allocated_bytes -= block.size
        pool = self._pools[block.small]
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.free:
                pool.remove(neighbour)
                self._join(block, neighbour)
        block.free = True
        pool.add(block)

    def empty_cache(self) -> None:
        """Gives unused segments back to the device (torch.cuda.empty_cache); expandable ones page by page."""
        for small, pool in self._pools.items():
            for block in list(pool.blocks.values()):
                if self.expandable:
                    self._unmap(small, pool, block)
                elif block.size == self._segment_bytes[block.segment]:
                    pool.remove(block)
                    self.reserved_bytes -= self._segment_bytes.pop(block.segment)

    def _take_free(self, pool: _Pool, size: int) -> _Block | None:
        position = pool.best_fit(size)
        if position == len(pool.keys):
            return None
        if self.expandable:
            # A block at the end counts with all that it could grow into: another that fits is taken first.
            while pool.at(position) is self._tails[pool is self._pools[True]] and position + 1 < len(
                pool.keys
            ):
                position += 1
        block = pool.at(position)
        pool.remove(block)
        return block

    def _split(self, pool: _Pool, block: _Block, size: int) -> None:
        rest = _Block(block.segment, block.offset + size, block.size - size, block.small)
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next = rest
        block.size = size
        rest.free = True
        if self._tails[block.small] is block:
            self._tails[block.small] = rest
        pool.add(rest)

    def _join(self, block: _Block, neighbour: _Block) -> None:
        """Makes `block` cover its free neighbour too."""
        if neighbour is block.previous:
            block.offset = neighbour.offset
            block.previous = neighbour.previous
            if block.previous is not None:
                block.previous.next = block
        else:
            block.next = neighbour.next
            if block.next is not None:
                block.next.previous = block
        block.size += neighbour.size
        if self._tails[block.small] is neighbour:
            self._tails[block.small] = block

    def _grow(self, small: bool, size: int) -> _Block:
        if self.expandable:
            return self._expand(small, size)
        if small:
            segment_bytes = SMALL_SEGMENT_BYTES
        elif size < OWN_SEGMENT_BYTES:
            segment_bytes = LARGE_SEGMENT_BYTES
        else:
            segment_bytes = -(-size // SEGMENT_GRANULARITY_BYTES) * SEGMENT_GRANULARITY_BYTES
        self._reserve(segment_bytes)
        segment, self._next_segment = self._next_segment, self._next_segment + 1
        self._segment_bytes[segment] = segment_bytes
        return _Block(segment, 0, segment_bytes, small)

    def _reserve(self, more_bytes: int) -> None:
        """Takes memory from the device; at the limit, cached memory is given back first, as the allocator does."""
        if self.limit_bytes is not None and self.reserved_bytes + more_bytes > self.limit_bytes:
            self.retries += 1
            self.empty_cache()
            if self.reserved_bytes + more_bytes > self.limit_bytes:
                raise SimulatedOutOfMemoryError(more_bytes, self.reserved_bytes, self.limit_bytes)
        self.reserved_bytes += more_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _expand(self, small: bool, size: int) -> _Block:
        """Maps pages behind the pool's last block until a block of `size` is there."""
        pool, tail = self._pools[small], self._tails[small]
        page = SMALL_SEGMENT_BYTES if small else LARGE_SEGMENT_BYTES
        free_tail = tail if tail is not None and tail.free else None
        missing = size - (free_tail.size if free_tail else 0)
        mapped = -(-missing // page) * page
        self._reserve(mapped)
        tail = self._tails[small]  # giving memory back may have taken it
        free_tail = tail if tail is not None and tail.free else None
        if free_tail is not None:
            pool.remove(free_tail)
            free_tail.size += mapped
            return free_tail
        start = 0 if tail is None else tail.offset + tail.size
        block = _Block(-2 if small else -3, start, mapped, small)
        block.previous = tail
        if tail is not None:
            tail.next = block
        self._tails[small] = block
        return block

    def _unmap(self, small: bool, pool: _Pool, block: _Block) -> None:
        """Gives the pages at the end of the pool back; pages in the middle stay, which overstates what is kept."""
        if block is not self._tails[small]:
            return
        pool.remove(block)
        self.reserved_bytes -= block.size
        self._tails[small] = block.previous
        if block.previous is not None:
            block.previous.next = None
