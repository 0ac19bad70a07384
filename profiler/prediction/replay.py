"""A trace's allocations handed to the simulated allocator, with the libraries' workspaces between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swinmr_profiling.profiler.allocator.caching_allocator import (
    MIN_BLOCK_BYTES,
    AllocatedBlock,
    CachingAllocator,
)
from swinmr_profiling.profiler.allocator.workspaces import Workspaces
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, PHASES, Trace
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory

# Operators that CUDA computes with cuBLAS, so that the calling thread's workspace exists from the first of them on.
PRODUCTS = (
    "aten.mm.",
    "aten.bmm.",
    "aten.addmm.",
    "aten.baddbmm.",
    "aten.addbmm.",
    "aten.addmv.",
    "aten.mv.",
)
# Of these, the ones that cublasLt computes together with the bias.
FUSED_BIAS = "aten.addmm."
NOTHING = Workspaces(0, 0, 0, "no workspaces")


@dataclass(frozen=True)
class Peak:
    """The moment of the most memory: bytes, where it is, and what is alive then by category (live bytes)."""

    allocated_bytes: int
    reserved_bytes: int
    live_bytes: int
    phase: str
    operator: str
    by_category: dict[MemoryCategory, int]


@dataclass(frozen=True)
class ReplayResult:
    """What the allocator would show.

    training, validation: peaks of the traced steps, and of the validation (None where none was traced).
    workspace_bytes: of the peaks, what cuBLAS and cublasLt keep. end_allocated_bytes: after the last event.
    """

    training: Peak
    validation: Peak | None
    workspace_bytes: int
    end_allocated_bytes: int
    peak_reserved_bytes: int


def live_peak(trace: Trace, first: int = 0, end: int | None = None) -> tuple[int, int]:
    """Most live bytes (each storage rounded up to 512) in events[first:end], and the event it is reached at."""
    live = trace.live_bytes(MIN_BLOCK_BYTES)[first:end]
    if not len(live):
        return 0, first
    position = int(live.argmax())
    return int(live[position]), first + position


def live_by_category(trace: Trace, event: int) -> dict[MemoryCategory, int]:
    """Bytes alive after an event, each storage rounded up to 512, by category."""
    alive = trace.alive(event + 1)
    rounded = -(-trace.sizes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
    return {
        name: int(rounded[alive & (trace.categories == number)].sum())
        for number, name in enumerate(CATEGORIES)
    }


def replay(trace: Trace, *, workspaces: Workspaces = NOTHING, expandable: bool = False) -> ReplayResult:
    """Replays all events in order."""
    allocator = CachingAllocator(expandable=expandable)
    blocks: dict[int, AllocatedBlock] = {}
    product, fused = (
        np.array([name.startswith(kinds) for name in trace.operator_names], dtype=bool)[
            trace.operators
        ].tolist()
        for kinds in (PRODUCTS, FUSED_BIAS)
    )
    streams = trace.streams().tolist()
    backward = PHASES.index("backward")
    setup_end = trace.step_starts[0] if trace.step_starts else 0
    validation_start = _validation_start(trace)
    # The autograd engine has a thread of its own, and each thread its workspace.
    kept: set[tuple[str, bool]] = set()
    taken = 0
    peaks: list[list[int]] = [[0, 0, 0], [0, 0, 0]]  # training, validation: allocated, event, reserved
    phases = trace.event_phases.tolist()
    sizes = trace.sizes.tolist()
    for position, event in enumerate(trace.events.tolist()):
        if position == setup_end:
            allocator.reset_peaks()
        if position == validation_start:
            # Not what was there at the last allocation of the steps, and is gone.
            allocator.peak_allocated_bytes = allocator.allocated_bytes
        if event < 0:
            allocator.free(blocks.pop(-event - 1))
            continue
        number = event - 1
        blocks[number] = allocator.allocate(sizes[number], streams[number])
        if product[number]:
            taken += _take_workspaces(
                allocator, workspaces, kept, phases[position] == backward, fused=fused[number]
            )
        if position >= setup_end:
            peak = peaks[validation_start is not None and position >= validation_start]
            if allocator.peak_allocated_bytes > peak[0]:
                peak[0], peak[1] = allocator.peak_allocated_bytes, position
            peak[2] = max(peak[2], allocator.reserved_bytes)
            allocator.peak_allocated_bytes = allocator.allocated_bytes
    return ReplayResult(
        training=_peak(trace, *peaks[0]),
        validation=None if validation_start is None else _peak(trace, *peaks[1]),
        workspace_bytes=taken,
        end_allocated_bytes=allocator.allocated_bytes,
        peak_reserved_bytes=allocator.peak_reserved_bytes,
    )


def _take_workspaces(
    allocator: CachingAllocator,
    workspaces: Workspaces,
    kept: set[tuple[str, bool]],
    thread: bool,
    *,
    fused: bool,
) -> int:
    """What a product's thread takes before it runs; bytes of that which it keeps. `kept` is what threads have."""
    taken = 0
    needs_cublas = workspaces.cublas_bytes and (not fused or workspaces.cublaslt_makes_cublas)
    if needs_cublas and ("cublas", thread) not in kept:
        kept.add(("cublas", thread))
        allocator.allocate(workspaces.cublas_bytes)
        taken += workspaces.cublas_bytes
    if fused and workspaces.cublaslt_bytes and ("cublaslt", thread) not in kept:
        block = allocator.allocate(workspaces.cublaslt_bytes)
        if workspaces.cublaslt_kept:
            kept.add(("cublaslt", thread))
            taken += workspaces.cublaslt_bytes
        else:
            allocator.free(block)
    return taken


def _validation_start(trace: Trace) -> int | None:
    validates = trace.step_starts and (trace.event_phases == PHASES.index("validation")).any()
    return trace.step_starts[-1] if validates else None


def _peak(trace: Trace, allocated_bytes: int, event: int, reserved_bytes: int) -> Peak:
    operator = trace.operators[abs(int(trace.events[event])) - 1]
    by_category = live_by_category(trace, event)
    return Peak(
        allocated_bytes=allocated_bytes,
        reserved_bytes=reserved_bytes,
        live_bytes=sum(by_category.values()),
        phase=PHASES[trace.event_phases[event]],
        operator=trace.operator_names[operator].removeprefix("aten."),
        by_category=by_category,
    )
