"""A predicted training step in the format of PyTorch's memory viewer (torch.cuda.memory._dump_snapshot).

The viewer at pytorch.org/memory_viz and `python -m torch.cuda._memory_viz` read it. Sizes of allocations are those of
the allocator's blocks, so that the highest point is what `torch.cuda.max_memory_allocated` would show.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TypedDict

from swinmr_profiling.profiler.allocator.caching_allocator import AllocatedBlock, CachingAllocator
from swinmr_profiling.profiler.prediction.settings import WrittenSnapshot
from swinmr_profiling.profiler.prediction.trace.allocation_frames import Line
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, PHASES, Trace

# The viewer's own reader of pickles knows protocols 2 to 4.
PROTOCOL = 4
FIRST_ADDRESS = 0x7F00_0000_0000
# The viewer wants this one among the categories as soon as there are any.
UNKNOWN = "unknown"
LIBRARIES = "cuBLAS's workspaces, kept by the process"


class Frame(TypedDict):
    filename: str
    line: int
    name: str


class _Event(TypedDict):
    action: str
    addr: int
    size: int
    stream: int
    frames: list[Frame]
    time_us: int


class Event(_Event, total=False):
    """One of the device's trace: bytes, and a number that stands for the time."""

    category: str


class BlockState(TypedDict):
    """A block at the end of the trace; bytes."""

    address: int
    size: int
    requested_size: int
    state: str
    frames: list[Frame]


class SegmentState(TypedDict):
    """What the allocator holds of the device at the end of the trace; bytes."""

    device: int
    address: int
    total_size: int
    allocated_size: int
    active_size: int
    requested_size: int
    stream: int
    segment_type: str
    segment_pool_id: tuple[int, int]
    is_expandable: bool
    frames: list[Frame]
    blocks: list[BlockState]


class Snapshot(TypedDict):
    """The file, as torch.cuda.memory._snapshot makes it."""

    title: str
    segments: list[SegmentState]
    device_traces: list[list[Event]]
    allocator_settings: dict[str, bool]


def snapshot_of(
    trace: Trace, stacks: Sequence[tuple[Line, ...]] | None, *, workspace_bytes: int, title: str
) -> tuple[Snapshot, WrittenSnapshot]:
    """The snapshot of the steps of a trace, without its validation, and its figures.

    stacks: lines of each allocation, None where they are not known. workspace_bytes: what the process's libraries keep,
    in a segment of its own, as the prediction adds it. title: said in every stack.
    """
    made = _Snapshot(title)
    if workspace_bytes:
        made.keep_workspaces(workspace_bytes)
    setup_end = trace.step_starts[0] if trace.step_starts else 0
    in_validation = trace.event_phases == PHASES.index("validation")
    steps_end = int(in_validation.argmax()) if in_validation.any() else len(trace.events)
    events, sizes = trace.events[:steps_end].tolist(), trace.sizes.tolist()
    passed = {-event for event in events[:setup_end] if event < 0}
    categories, operators = trace.categories.tolist(), trace.operators.tolist()
    blocks: dict[int, AllocatedBlock] = {}
    for event in events:
        number = abs(event) - 1
        # A tensor that is gone before the first step is none of the step's.
        shown = abs(event) not in passed
        if event < 0:
            made.free(blocks.pop(number), shown=shown)
            continue
        lines = (("", 0, trace.operator_names[operators[number]]),) if stacks is None else stacks[number]
        category = CATEGORIES[categories[number]].replace("_", " ")
        blocks[number] = made.allocate(sizes[number], made.frames(lines), category, shown=shown)
    return made.finished(with_lines=stacks is not None)


def write_snapshot(snapshot: Snapshot, file: Path) -> None:
    """Raises OSError."""
    with file.open("wb") as stream:
        pickle.dump(snapshot, stream, protocol=PROTOCOL)


class _Snapshot:
    def __init__(self, title: str) -> None:
        self.title = title
        self._allocator = CachingAllocator()
        self._events: list[Event] = []
        self._frames: dict[tuple[Line, ...], list[Frame]] = {}
        self._addresses: dict[int, int] = {}
        self._next_address = FIRST_ADDRESS
        # By (segment, offset): frames and the bytes that were asked for.
        self._alive: dict[tuple[int, int], tuple[AllocatedBlock, list[Frame], int]] = {}
        self._first: list[SegmentState] = []
        self._live = self._peak = self._kept = 0

    def frames(self, lines: tuple[Line, ...]) -> list[Frame]:
        """The same list for the same lines: it is pickled once."""
        if lines not in self._frames:
            self._frames[lines] = [
                Frame(filename=file, line=line, name=name)
                for file, line, name in (*lines, ("predicted, not measured", 0, self.title))
            ]
        return self._frames[lines]

    def keep_workspaces(self, size: int) -> None:
        frames = self.frames((("", 0, LIBRARIES),))
        address = self._segment(size, frames)
        self._event("alloc", address, size, frames, "predicted: workspaces")
        self._first.append(_segment_state(address, size, [_block_state(address, size, size, frames)]))
        self._kept = size
        self._grow(size)

    def allocate(self, size: int, frames: list[Frame], category: str, *, shown: bool) -> AllocatedBlock:
        block = self._allocator.allocate(size)
        if block.segment not in self._addresses:
            self._addresses[block.segment] = self._segment(
                self._allocator.segment_bytes[block.segment], frames
            )
        self._alive[block.segment, block.offset] = (block, frames, size)
        if shown:
            self._event("alloc", self._address(block), block.size, frames, f"predicted: {category}")
            self._grow(block.size)
        return block

    def free(self, block: AllocatedBlock, *, shown: bool) -> None:
        _, frames, _ = self._alive.pop((block.segment, block.offset))
        if shown:
            for action in ("free_requested", "free_completed"):
                self._event(action, self._address(block), block.size, frames)
            self._live -= block.size
        self._allocator.free(block)

    def finished(self, *, with_lines: bool) -> tuple[Snapshot, WrittenSnapshot]:
        segments: dict[int, list[BlockState]] = {number: [] for number in self._addresses}
        for block, frames, requested in self._alive.values():
            segments[block.segment].append(_block_state(self._address(block), block.size, requested, frames))
        for block in self._allocator.free_blocks():
            segments[block.segment].append(_block_state(self._address(block), block.size, None, []))
        described = [
            _segment_state(
                self._addresses[number],
                self._allocator.segment_bytes[number],
                sorted(blocks, key=itemgetter("address")),
            )
            for number, blocks in segments.items()
        ]
        snapshot = Snapshot(
            title=self.title,
            segments=[*self._first, *described],
            device_traces=[self._events],
            allocator_settings={"expandable_segments": False},
        )
        return snapshot, WrittenSnapshot(
            self._peak, self._allocator.reserved_bytes + self._kept, with_lines=with_lines
        )

    def _segment(self, size: int, frames: list[Frame]) -> int:
        address, self._next_address = self._next_address, self._next_address + size
        # To whole pages, as the device hands them out.
        self._next_address += -self._next_address % (2 * 2**20)
        self._event("segment_alloc", address, size, frames, UNKNOWN)
        return address

    def _address(self, block: AllocatedBlock) -> int:
        return self._addresses[block.segment] + block.offset

    def _grow(self, size: int) -> None:
        self._live += size
        self._peak = max(self._peak, self._live)

    def _event(
        self, action: str, address: int, size: int, frames: list[Frame], category: str | None = None
    ) -> None:
        event = Event(
            action=action, addr=address, size=size, stream=0, frames=frames, time_us=len(self._events)
        )
        if category is not None:
            event["category"] = category
        self._events.append(event)


def _block_state(address: int, size: int, requested_size: int | None, frames: list[Frame]) -> BlockState:
    """requested_size: None where nobody has it."""
    state = "inactive" if requested_size is None else "active_allocated"
    return BlockState(
        address=address, size=size, requested_size=requested_size or 0, state=state, frames=frames
    )


def _segment_state(address: int, size: int, blocks: list[BlockState]) -> SegmentState:
    active = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": active,
        "active_size": active,
        "requested_size": sum(one["requested_size"] for one in blocks),
        "stream": 0,
        "segment_type": "small" if size <= 2 * 2**20 else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
