"""Whether a run fits into a limit, and what it costs near it: the replay of a card that is nearly full.

Before it gives up, the allocator gives its cached segments back to the device and asks once more, which stops the GPU.
A convolution whose workspace does not fit takes an algorithm that needs none (cudnn/Conv_v8.cpp: the next plan after
an out-of-memory error).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder
from swinmr_profiling.profiler.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemoryError


@dataclass(frozen=True)
class FitAtLimit:
    """fits: nothing asked for in vain. flushes: how often cached memory was given back; in a steady run each step
    flushes anew. slower_convolutions: how many ran without their workspace. reserved_bytes: at the end, or when it
    failed."""

    fits: bool
    flushes: int
    slower_convolutions: int
    reserved_bytes: int

    @property
    def words(self) -> str:
        """ "fits", "fits, slower (2 flushes)", "does not fit"."""
        if not self.fits:
            return "does not fit"
        counted = (
            (self.flushes, ("flush", "flushes")),
            (self.slower_convolutions, ("convolution without workspace", "convolutions without workspace")),
        )
        parts = [f"{count} {names[count > 1]}" for count, names in counted if count]
        return f"fits, slower ({', '.join(parts)})" if parts else "fits"


def fit_at_limit(
    order: AllocationOrder, batch_size: int, limit_bytes: int, *, kept_bytes: Sequence[int] = ()
) -> FitAtLimit:
    """Replays a run of a batch with no more than `limit_bytes` in segments.

    limit_bytes: the card's memory less the context. kept_bytes: blocks that are there from the beginning to the end
    (cuBLAS's workspaces of each thread).
    """
    sizes = order.sizes(batch_size).tolist()
    optional = () if order.optional is None else order.optional.tolist()
    streams = () if order.streams is None else order.streams.tolist()
    allocator = CachingAllocator(limit_bytes)
    blocks: dict[int, Any] = {}
    slower = 0
    try:
        for size in kept_bytes:
            allocator.allocate(size)
        for event in order.events.tolist():
            if event < 0:
                block = blocks.pop(-event - 1)
                if block is not None:
                    allocator.free(block)
                continue
            try:
                blocks[event - 1] = allocator.allocate(sizes[event - 1], streams[event - 1] if streams else 0)
            except SimulatedOutOfMemoryError:
                if not optional or not optional[event - 1]:
                    raise
                blocks[event - 1] = None
                slower += 1
    except SimulatedOutOfMemoryError:
        return FitAtLimit(False, allocator.retries, slower, allocator.reserved_bytes)
    return FitAtLimit(True, allocator.retries, slower, allocator.reserved_bytes)
