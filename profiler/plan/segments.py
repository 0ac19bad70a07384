"""The last micro-batch of a step, cut where modules begin: bytes and multiply-adds of each piece, forward and backward.

A piece begins with a module's forward and goes on to the next module's. Its part of the backward pass is known by
autograd's numbers. Pieces of two traces, one with a module recomputed and one without, can stand in for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swinmr_profiling.profiler.allocator.caching_allocator import MIN_BLOCK_BYTES
from swinmr_profiling.profiler.plan.span_trace import TracedStep
from swinmr_profiling.profiler.prediction.trace.storage_trace import PHASES


class NoChainError(ValueError):
    """The backward pass does not go through the pieces in the reverse order of the forward pass."""


@dataclass(frozen=True)
class Piece:
    """What a stretch of time does to the live bytes (each storage rounded up to 512).

    net: bytes alive at its end less those at its beginning. peak: the most alive in it, above those at its beginning.
    macs, made_bytes: multiply-adds in it, and bytes of the storages that it makes.
    """

    net: int
    peak: int
    macs: int
    made_bytes: int


@dataclass(frozen=True)
class CutStep:
    """forward, backward: positions in the events where the calls begin, and where their parts of the backward pass do.

    Both are in the order of the calls, so that those of `backward` fall. end: where the backward pass leaves the first
    call. start: where the micro-batch begins.
    """

    step: TracedStep
    live: np.ndarray
    made: np.ndarray
    work_at: np.ndarray
    work: np.ndarray
    forward: list[int]
    backward: list[int]
    end: int
    start: int

    def piece(self, begin: int, end: int) -> Piece:
        """Of the events from begin to before end."""
        before = int(self.live[begin - 1]) if begin else 0
        if end <= begin:
            return Piece(0, 0, macs=0, made_bytes=0)
        live = self.live[begin:end]
        made = int(self.made[end - 1]) - (int(self.made[begin - 1]) if begin else 0)
        first, last = np.searchsorted(self.work_at, [begin, end], side="right")
        macs = int(self.work[last]) - int(self.work[first])
        return Piece(int(live[-1]) - before, max(0, int(live.max()) - before), macs, made)

    def of_calls(self, first: int, after: int) -> tuple[Piece, Piece]:
        """The forward and the backward pieces from one call to before another."""
        done = self.end if first == 0 else self.backward[first - 1]
        later = self.forward[after] if after < len(self.forward) else self.backward[-1]
        return self.piece(self.forward[first], later), self.piece(self.backward[after - 1], done)

    def rounded(self, number: int) -> int:
        """Bytes of an allocation as the allocator rounds them."""
        return -(-int(self.step.trace.sizes[number]) // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES

    @property
    def calls(self) -> int:
        return len(self.forward)

    @property
    def live_before(self) -> int:
        """Bytes alive before the first call."""
        first = self.forward[0]
        return int(self.live[first - 1]) if first else 0

    def peak_elsewhere(self) -> int:
        """The most bytes alive in the last micro-batch and after it, outside of all calls."""
        outside = [self.live[self.start : self.forward[0]], self.live[self.end :]]
        return max((int(part.max()) for part in outside if len(part)), default=0)


def cut(step: TracedStep) -> CutStep:
    """Raises NoChainError where the calls' parts of the backward pass are not in their reverse order."""
    spans = step.spans.spans
    if not spans or not step.spans.backward:
        raise NoChainError("no module with parts of its own is called and differentiated")
    numbers = np.array([span.sequence for span in spans])
    if (np.diff(numbers) < 0).any():
        raise NoChainError("modules are called in several threads")
    positions, nodes = zip(*step.spans.backward, strict=True)
    calls = np.searchsorted(numbers, nodes, side="right") - 1
    if len(calls) and (np.diff(np.minimum.accumulate(calls)) != np.diff(calls)).any():
        raise NoChainError("the backward pass goes back and forth between modules")
    starts = [0] * len(spans)
    reached = len(spans)
    for position, call in zip(positions, calls.tolist(), strict=True):
        while reached > max(call, 0):
            reached -= 1
            starts[reached] = position
        if call < 0:
            end = position
            break
    else:
        end = _end_of_backward(step, positions[-1])
    starts[:reached] = [end] * reached
    trace = step.trace
    rounded = -(-trace.sizes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
    work = sorted(step.spans.work)
    return CutStep(
        step=step,
        live=trace.live_bytes(MIN_BLOCK_BYTES),
        made=np.cumsum(np.where(trace.events > 0, rounded[np.abs(trace.events) - 1], 0)),
        work_at=np.array([position for position, _ in work], dtype=np.int64),
        work=np.concatenate([[0], np.cumsum([macs for _, macs in work], dtype=np.int64)]).astype(np.int64),
        forward=[span.begin for span in spans],
        backward=starts,
        end=end,
        start=_start_of_micro_batch(step, spans[0].begin),
    )


def _start_of_micro_batch(step: TracedStep, first: int) -> int:
    """Where the phases "inputs" and "forward" that hold the first call begin."""
    within = np.isin(step.trace.event_phases[:first], (PHASES.index("inputs"), PHASES.index("forward")))
    outside = np.flatnonzero(~within)
    return int(outside[-1]) + 1 if len(outside) else 0


def _end_of_backward(step: TracedStep, last: int) -> int:
    """Where the phase of the last node that ran ends."""
    phases = step.trace.event_phases
    later = np.flatnonzero(phases[last:] != PHASES.index("backward"))
    return last + int(later[0]) if len(later) else len(phases)
