"""PyTorch's caching allocator, replayed: what a sequence of allocations makes of `allocated` and `reserved` memory.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of PyTorch 2.9 to 2.14 (default settings).
Sizes are bytes; addresses are positions in the segment, which is all that best fit asks for. What was allocated on a
stream is handed out again on that stream alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort

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


# What an expandable segment can grow to; the allocator reserves more addresses than the device has memory.
ADDRESS_SPACE_BYTES = 2**60


# A stream, 0 for the one that computes, and whether blocks are small.
PoolKey = tuple[int, bool]


class AllocatedBlock:
    """A stretch of a segment. Free blocks are ordered by (size, segment, offset), as the allocator orders them.

    pool: the stream and whether it is of small segments. mapped: whether there is memory behind the addresses; only
    expandable segments have blocks without.
    """

    __slots__ = ("free", "mapped", "next", "offset", "pool", "previous", "segment", "size")

    def __init__(self, segment: int, offset: int, size: int, pool: PoolKey, mapped: bool = True) -> None:
        self.segment, self.offset, self.size, self.pool = segment, offset, size, pool
        self.previous: AllocatedBlock | None = None
        self.next: AllocatedBlock | None = None
        self.free = False
        self.mapped = mapped

    def key(self) -> tuple[int, int, int]:
        return self.size, self.segment, self.offset

    def room(self) -> int:
        """Bytes that it can grow to: a block before unmapped addresses counts with them."""
        return self.size + (self.next.size if self.next is not None and not self.next.mapped else 0)

    def put_between(self, before: AllocatedBlock | None, after: AllocatedBlock | None) -> None:
        self.previous, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.previous = self


class _Pool:
    """Free blocks of one pool, best fit first; and its unmapped ones, which are few, by address."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, int, int]] = []
        self.blocks: dict[tuple[int, int], AllocatedBlock] = {}
        self.unmapped: list[AllocatedBlock] = []

    def add(self, block: AllocatedBlock) -> None:
        block.free = True
        if not block.mapped:
            insort(self.unmapped, block, key=lambda other: other.offset)
            return
        insort(self.keys, block.key())
        self.blocks[block.segment, block.offset] = block

    def remove(self, block: AllocatedBlock) -> None:
        if not block.mapped:
            self.unmapped.remove(block)
            return
        del self.keys[bisect_left(self.keys, block.key())]
        del self.blocks[block.segment, block.offset]

    def at(self, position: int) -> AllocatedBlock:
        _, segment, offset = self.keys[position]
        return self.blocks[segment, offset]


class CachingAllocator:
    """One device's allocator.

    limit_bytes: what segments may take together; None for no limit. expandable: the setting
    `expandable_segments:True`, where each pool is one segment that grows page by page (2 or 20 MiB).
    Each stream has pools of its own.

    Attributes, bytes now and at most: `allocated_bytes` in blocks handed out, `reserved_bytes` in segments taken from
    the device, `peak_allocated_bytes`, `peak_reserved_bytes`. retries: how often cached memory was given back at the
    limit.
    """

    def __init__(self, limit_bytes: int | None = None, expandable: bool = False) -> None:
        self.limit_bytes, self.expandable = limit_bytes, expandable
        self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.retries = 0
        self._pools: dict[PoolKey, _Pool] = {}
        # What each segment, by the number that its blocks carry, took from the device (not of expandable ones).
        self.segment_bytes: dict[int, int] = {}
        self._next_segment = 0

    def reset_peaks(self) -> None:
        """As torch.cuda.reset_peak_memory_stats: peaks start again from what is in use."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes

    def free_blocks(self) -> list[AllocatedBlock]:
        """The blocks that are cached: in segments, handed out to nobody."""
        return [block for pool in self._pools.values() for block in pool.blocks.values()]

    def _pool(self, key: PoolKey) -> _Pool:
        if key not in self._pools:
            self._pools[key] = _Pool()
            if self.expandable:
                self._pools[key].add(AllocatedBlock(0, 0, ADDRESS_SPACE_BYTES, key, mapped=False))
        return self._pools[key]

    def allocate(self, requested_bytes: int, stream: int = 0) -> AllocatedBlock:
        """A block for a request on a stream. Raises SimulatedOutOfMemoryError; the blocks handed out stay valid."""
        size = max(-(-requested_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES, MIN_BLOCK_BYTES)
        small = size <= SMALL_REQUEST_BYTES
        key = (stream, small)
        pool = self._pool(key)
        block = self._take_free(pool, size)
        if block is None:
            block = self._grow(key, size)
        remaining = block.size - size
        if remaining >= MIN_BLOCK_BYTES if small or self.expandable else remaining > SMALL_REQUEST_BYTES:
            self._split(pool, block, size)
        block.free = False
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: AllocatedBlock) -> None:
        """Gives a block back to its pool, joined with free neighbours."""
        self.allocated_bytes -= block.size
        pool = self._pools[block.pool]
        self._join_neighbours(pool, block)
        pool.add(block)

    def empty_cache(self) -> None:
        """Gives unused segments back to the device (torch.cuda.empty_cache); expandable ones page by page."""
        for pool in self._pools.values():
            for block in list(pool.blocks.values()):
                if self.expandable:
                    self._unmap(pool, block)
                elif block.size == self.segment_bytes[block.segment]:
                    pool.remove(block)
                    self.reserved_bytes -= self.segment_bytes.pop(block.segment)

    def _take_free(self, pool: _Pool, size: int) -> AllocatedBlock | None:
        position = bisect_left(pool.keys, (size, -1, -1))  # the smallest free block of at least `size`
        if position == len(pool.keys):
            return None
        block = pool.at(position)
        if self.expandable:
            # A block that can grow counts with what it could grow to, so that another is taken before it.
            while position + 1 < len(pool.keys) and pool.at(position + 1).room() < block.room():
                position += 1
                block = pool.at(position)
        pool.remove(block)
        return block

    def _split(self, pool: _Pool, block: AllocatedBlock, size: int) -> None:
        """Shortens the block to `size`; what is behind becomes a free (or unmapped) block of its own."""
        rest = AllocatedBlock(block.segment, block.offset + size, block.size - size, block.pool, block.mapped)
        rest.put_between(block, block.next)
        block.size = size
        pool.add(rest)

    def _join_neighbours(self, pool: _Pool, block: AllocatedBlock) -> None:
        """Makes `block`, which is in no pool, cover its free neighbours (unmapped ones, where it is unmapped)."""
        before, after = block.previous, block.next
        if before is not None and before.free and before.mapped == block.mapped:
            pool.remove(before)
            block.offset = before.offset
            block.size += before.size
            block.put_between(before.previous, after)
        if after is not None and after.free and after.mapped == block.mapped:
            pool.remove(after)
            block.size += after.size
            block.put_between(block.previous, after.next)

    def _grow(self, key: PoolKey, size: int) -> AllocatedBlock:
        if key[1]:
            segment_bytes = SMALL_SEGMENT_BYTES
        elif size < OWN_SEGMENT_BYTES:
            segment_bytes = LARGE_SEGMENT_BYTES
        else:
            segment_bytes = -(-size // SEGMENT_GRANULARITY_BYTES) * SEGMENT_GRANULARITY_BYTES
        for attempt in range(2):
            block = self._expand(key, size) if self.expandable else self._segment(key, segment_bytes)
            if block is not None:
                return block
            if attempt == 0:
                # At the limit cached memory is given back, and it is tried once more.
                self.retries += 1
                self.empty_cache()
        raise SimulatedOutOfMemoryError(
            size if self.expandable else segment_bytes, self.reserved_bytes, self.limit_bytes or 0
        )

    def _segment(self, key: PoolKey, segment_bytes: int) -> AllocatedBlock | None:
        if not self._reserve(segment_bytes):
            return None
        segment, self._next_segment = self._next_segment, self._next_segment + 1
        self.segment_bytes[segment] = segment_bytes
        return AllocatedBlock(segment, 0, segment_bytes, key)

    def _reserve(self, more_bytes: int) -> bool:
        """Takes memory from the device; False where the limit does not allow it."""
        if self.limit_bytes is not None and self.reserved_bytes + more_bytes > self.limit_bytes:
            return False
        self.reserved_bytes += more_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return True

    def _expand(self, key: PoolKey, size: int) -> AllocatedBlock | None:
        """Maps pages where, from the lowest address on, `size` bytes are free or unmapped; None at the limit."""
        pool = self._pools[key]
        block = self._lowest_room(pool, size)
        if not block.mapped and not self._map(pool, block, min(block.size, size)):
            return None
        while block.size < size:
            # Free memory before unmapped addresses: what is mapped joins it.
            behind = block.next
            assert behind is not None  # there is room: `_lowest_room` found it
            if not self._map(pool, behind, min(size - block.size, behind.size)):
                return None
            block = behind
        pool.remove(block)
        return block

    @staticmethod
    def _lowest_room(pool: _Pool, size: int) -> AllocatedBlock:
        for unmapped in pool.unmapped:
            start = unmapped.previous if unmapped.previous and unmapped.previous.free else unmapped
            found = 0
            block: AllocatedBlock | None = start
            while found < size and block is not None and block.free:
                found += block.size
                block = block.next
            if found >= size:
                return start
        raise OverflowError(f"{size} bytes are more than there are addresses")

    def _map(self, pool: _Pool, block: AllocatedBlock, size: int) -> bool:
        """Puts memory behind the first pages of an unmapped block, `size` bytes rounded up, as a free block."""
        page = SMALL_SEGMENT_BYTES if block.pool[1] else LARGE_SEGMENT_BYTES
        mapped_bytes = -(-size // page) * page
        if not self._reserve(mapped_bytes):
            return False
        pool.remove(block)
        if mapped_bytes < block.size:
            self._split(pool, block, mapped_bytes)
        block.mapped = True
        self._join_neighbours(pool, block)
        pool.add(block)
        return True

    def _unmap(self, pool: _Pool, block: AllocatedBlock) -> None:
        """Gives back the pages that lie in a free block as a whole; its ends stay free blocks."""
        page = SMALL_SEGMENT_BYTES if block.pool[1] else LARGE_SEGMENT_BYTES
        first = -(-block.offset // page) * page
        end = (block.offset + block.size) // page * page
        if first >= end:
            return
        pool.remove(block)
        if end < block.offset + block.size:
            self._split(pool, block, end - block.offset)
        if block.offset < first:
            before = AllocatedBlock(block.segment, block.offset, first - block.offset, block.pool)
            before.put_between(block.previous, block)
            block.offset, block.size = first, end - first
            pool.add(before)
        self.reserved_bytes -= block.size
        block.mapped = False
        self._join_neighbours(pool, block)
        pool.add(block)
