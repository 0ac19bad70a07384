"""Which modules of a chain to recompute: the fewest multiply-adds within a budget, by dynamic programming.

A step is a path through the places where modules begin. An edge keeps what the forward pass saves from one place to the
next, or recomputes a module and goes to where it has ended, be it a block or a group of blocks. What is saved so far is
all that the past means for the future, so that of two paths to a place the one that saves more and costs more is
dropped. (Chen et al. 2016; Feng and Huang 2021, "Optimal gradient checkpoint search for arbitrary computation graphs",
for chains; here with modules inside one another and the peaks of a trace.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, cast

import numpy as np

from swinmr_profiling.profiler.plan.segments import CutStep

# Beyond so many paths to a place, those that save the same to a share of 1 / MOST_PATHS are taken for one.
MOST_PATHS = 4096
LARGEST_GRAIN_BYTES = 2 * 2**20


@dataclass(frozen=True)
class Edge:
    """From one place to another.

    Attributes:
        module: what is recomputed, None where nothing is.
        saved: bytes that stay at the end of its forward piece.
        forward_peak, backward_peak: bytes above those alive at the beginning of its pieces.
        macs, made_bytes: what it computes and makes again.
    """

    begin: int
    end: int
    module: str | None
    saved: int
    forward_peak: int
    backward_peak: int
    macs: int
    made_bytes: int


@dataclass(frozen=True)
class Chain:
    """Edges of a step of `places` places (0 to places - 1, and the end).

    live_before: bytes alive before the first place. later_bytes: for each place what the parts of the backward pass
    behind it have added (gradients) by the time it is reached. elsewhere: the peak outside.
    """

    places: int
    edges: tuple[Edge, ...]
    live_before: int
    later_bytes: tuple[int, ...]
    elsewhere: int

    def peaks(self, edge: Edge, saved_before: int) -> int:
        """The most bytes alive in an edge's pieces."""
        forward = saved_before + edge.forward_peak
        backward = saved_before + edge.saved + self.later_bytes[edge.end] + edge.backward_peak
        return self.live_before + max(forward, backward)

    def peak(self, modules: Iterable[str]) -> int:
        """The most bytes alive where these modules, none inside another, are recomputed."""
        chosen, peak, saved, place = set(modules), self.elsewhere, 0, 0
        starting = {edge.begin: edge for edge in self.edges if edge.module is None}
        starting |= {edge.begin: edge for edge in self.edges if edge.module in chosen}
        while place < self.places:
            edge = starting[place]
            peak = max(peak, self.peaks(edge, saved))
            saved += edge.saved
            place = edge.end
        return peak


@dataclass(frozen=True)
class Selection:
    """modules: to be recomputed, in the order of their calls. peak_bytes: live. macs, made_bytes: computed again."""

    modules: tuple[str, ...]
    peak_bytes: int
    macs: int
    made_bytes: int

    @property
    def cost(self) -> tuple[int, int]:
        """What is compared: multiply-adds, then bytes."""
        return self.macs, self.made_bytes


def chain_of(plain: CutStep, recomputed: Sequence[tuple[CutStep, Sequence[str]]]) -> Chain:
    """The chain of a step: traced as it is, and with sets of modules recomputed that are not inside one another.

    All are of the same calls at the same batch size.
    """
    calls = plain.calls
    edges, added = [], [0] * (calls + 1)
    for place in range(calls):
        forward, backward = plain.of_calls(place, place + 1)
        edges.append(Edge(place, place + 1, None, forward.net, forward.peak, backward.peak, 0, 0))
        added[place] = forward.net + backward.net
    freed_in = _freed_in_forward(plain)
    for step, modules in recomputed:
        wanted = set(modules)
        kept = {
            number: place
            for span in plain.step.spans.spans
            if span.name in wanted
            for number in span.inputs
            if (place := freed_in.get(number, -1)) >= span.after
        }
        for span, own in zip(plain.step.spans.spans, step.step.spans.spans, strict=True):
            if span.name not in wanted:
                continue
            forward, backward = step.of_calls(own.first, own.after)
            before = plain.of_calls(span.first, span.after)
            # What it holds on to is let go later in the plain step; there the traced one, which holds on to all
            # its modules' inputs, lets nothing go.
            holds = sum(plain.rounded(number) for number in span.inputs if number in kept)
            lets_go = sum(plain.rounded(n) for n, place in kept.items() if span.first <= place < span.after)
            edges.append(
                Edge(
                    span.first,
                    span.after,
                    span.name,
                    forward.net + holds - lets_go,
                    forward.peak,
                    backward.peak,
                    max(0, forward.macs + backward.macs - before[0].macs - before[1].macs),
                    max(
                        0,
                        forward.made_bytes
                        + backward.made_bytes
                        - before[0].made_bytes
                        - before[1].made_bytes,
                    ),
                )
            )
    later = reversed([*accumulate(reversed(added))])
    return Chain(calls, tuple(edges), plain.live_before, tuple(later), plain.peak_elsewhere())


def peak_grain(peak_bytes: int) -> int:
    """What is looked for no finer: a thousandth of a peak, at most 2 MiB."""
    return max(1, min(LARGEST_GRAIN_BYTES, peak_bytes // 1024))


def _freed_in_forward(step: CutStep) -> dict[int, int]:
    """Allocation -> the place behind which it is released, of those that are released in the forward pass."""
    first, last = step.forward[0], step.backward[-1]
    events = step.step.trace.events[first:last]
    places = np.searchsorted(step.forward, np.arange(first, last), side="right") - 1
    gone = events < 0
    return dict(zip((-events[gone] - 1).tolist(), places[gone].tolist(), strict=True))


def select(chain: Chain, budget_bytes: int) -> Selection | None:
    """The modules of the least cost whose peak is within the budget, None where there are none.

    Of those that cost the same, a set whose peak is lowest (to `peak_grain`).
    """
    found = _cheapest(chain, budget_bytes)
    if found is None:
        return None
    low, best = chain.elsewhere - 1, found
    grain = peak_grain(found.peak_bytes)
    trial = found.peak_bytes - grain
    while trial > low:
        other = _cheapest(chain, trial)
        if other is None or other.cost > best.cost:
            low = trial
        else:
            best = other
        if best.peak_bytes - low <= grain:
            break
        trial = (low + best.peak_bytes) // 2
    return best


class _Paths(NamedTuple):
    """To one place: bytes saved, cost, and of each the edge that it ends with and the path before that."""

    saved: np.ndarray
    macs: np.ndarray
    made: np.ndarray
    edge: np.ndarray
    before: np.ndarray


def _cheapest(chain: Chain, budget_bytes: int) -> Selection | None:
    if chain.elsewhere > budget_bytes:
        return None
    none = np.zeros(1, dtype=np.int64)
    paths: list[_Paths | None] = [None] * (chain.places + 1)
    paths[0] = _Paths(none, none, none, none - 1, none - 1)
    arriving: dict[int, list[int]] = {}
    for number, edge in enumerate(chain.edges):
        arriving.setdefault(edge.end, []).append(number)
    room = budget_bytes - chain.live_before
    for place in range(1, chain.places + 1):
        parts = [
            part
            for number in arriving.get(place, ())
            if (part := _along(chain, number, paths[chain.edges[number].begin], room)) is not None
        ]
        if parts:
            paths[place] = _kept(parts, room)
    last = paths[chain.places]
    if last is None:
        return None
    number = int(np.lexsort((last.saved, last.made, last.macs))[0])
    macs, made = int(last.macs[number]), int(last.made[number])
    modules: list[str] = []
    at = last
    while (edge_number := int(at.edge[number])) >= 0:
        edge = chain.edges[edge_number]
        if edge.module is not None:
            modules.append(edge.module)
        number, at = int(at.before[number]), cast(_Paths, paths[edge.begin])
    return Selection(tuple(reversed(modules)), chain.peak(modules), macs, made)


def _along(chain: Chain, number: int, before: _Paths | None, room: int) -> _Paths | None:
    """The paths that go on by an edge within the budget."""
    if before is None:
        return None
    edge = chain.edges[number]
    most = max(edge.forward_peak, edge.saved + chain.later_bytes[edge.end] + edge.backward_peak)
    [within] = np.nonzero(before.saved + most <= room)
    if not len(within):
        return None
    return _Paths(
        before.saved[within] + edge.saved,
        before.macs[within] + edge.macs,
        before.made[within] + edge.made_bytes,
        np.full(len(within), number),
        within,
    )


def _kept(parts: list[_Paths], room: int) -> _Paths:
    """Paths of which none saves less and costs no more than another."""
    together = _Paths(*map(np.concatenate, zip(*parts, strict=True)))
    order = np.lexsort((together.saved, together.made, together.macs))
    saved = together.saved[order]
    # Dearer paths are worth keeping only where they save fewer bytes than every cheaper one.
    lowest = np.minimum.accumulate(saved)
    kept = np.ones(len(saved), dtype=bool)
    kept[1:] = saved[1:] < lowest[:-1]
    order = order[kept]
    if len(order) > MOST_PATHS:
        grain = max(1, room // MOST_PATHS)
        _, first = np.unique(-(together.saved[order] // grain), return_index=True)
        order = order[np.sort(first)]
    return _Paths(*(values[order] for values in together))
