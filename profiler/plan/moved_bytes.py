"""What waits on the host in place of the device, ordered by the bytes that it moves over the bus."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.configs.sections.strategy import OnHost
from swinmr_profiling.profiler.allocator.caching_allocator import MIN_BLOCK_BYTES
from swinmr_profiling.profiler.prediction.replay import live_peak
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory

# What is alive all the time where it does not wait on the host, its category in a trace, and how often it crosses the
# bus in an optimizer step.
ALWAYS_ALIVE: dict[OnHost, tuple[MemoryCategory, int]] = {
    "ema": ("ema", 1),
    "optimizer_states": ("optimizer_state", 2),
}


def by_moved_bytes(
    possible: Sequence[tuple[OnHost, ...]],
    own: Sequence[OnHost],
    traces: tuple[Trace, Trace],
    accumulate: int,
    room_bytes: int,
) -> list[tuple[int, tuple[OnHost, ...]]]:
    """(bytes that move in an optimizer step, names) of those that may bring its live peak within the room, the ones
    that move the least first.

    own: what is there already. traces: of a micro-batch with that, and with the activations there as well.
    """
    trace, saved = traces
    plain, hosted = (live_peak(each, each.step_starts[0])[0] for each in traces)
    found: list[tuple[int, tuple[OnHost, ...]]] = []
    for names in possible:
        peak, moved = plain, 0
        if "activations" in names and "activations" not in own:
            peak, moved = hosted, sum(saved.moved_bytes) * accumulate
        for name, (category, times) in ALWAYS_ALIVE.items():
            if name in names and name not in own:
                # It takes its own bytes from a peak, and no more.
                peak -= bytes_of(trace, category)
                moved += bytes_of(trace, category) * times
        if peak <= room_bytes:
            found.append((moved, names))
    return sorted(found)


def bytes_of(trace: Trace, category: MemoryCategory) -> int:
    """Of all allocations of a category, each rounded up as the allocator rounds."""
    sizes = trace.sizes[trace.categories == CATEGORIES.index(category)]
    return int((-(-sizes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES).sum())


def moved_bytes(one: Sequence[int], traced: Sequence[int], accumulate: int) -> tuple[int, int]:
    """(to the host, from there) in an optimizer step of any number of micro-batches.

    one: of a step with one of them. traced: of the step with as many as are traced, two at most.
    """
    if accumulate <= 2:
        return traced[0], traced[1]
    there, back = (
        two + (two - single) * (accumulate - 2) for single, two in zip(one, traced, strict=True)
    )  # fmt: skip
    return there, back
