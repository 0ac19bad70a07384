"""Which modules to recompute where the step is no chain: the best ratio of saved bytes to multiply-adds first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swinmr_profiling.profiler.allocator.caching_allocator import MIN_BLOCK_BYTES
from swinmr_profiling.profiler.plan.span_trace import TracedStep
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES

SAVED = CATEGORIES.index("saved_activations")


def greedy_order(step: TracedStep) -> list[str]:
    """Modules by the bytes that their forward saves for each multiply-add that it makes, the best first.

    Of modules inside one another the inner ones with a better ratio come first, and the outer one takes their place.
    """
    trace, spans = step.trace, step.spans
    once = spans.called_once()
    ratios: list[tuple[float, str]] = []
    rounded = -(-trace.sizes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
    for span in spans.spans:
        if span.name not in once:
            continue
        made = trace.events[span.begin : span.end]
        numbers = made[made > 0] - 1
        saved = int(rounded[numbers[trace.categories[numbers] == SAVED]].sum())
        macs = sum(macs for position, macs in spans.work if span.begin < position <= span.end)
        if saved:
            ratios.append((saved / (macs + 1), span.name))
    return [name for _, name in sorted(ratios, key=lambda one: -one[0])]


def shortest_prefix(order: Sequence[str], fits: Callable[[list[str]], bool]) -> list[str] | None:
    """The fewest first modules of an order that fit, None where even all do not; more of them save more."""
    if not order or not fits(outermost(order)):
        return None
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(outermost(order[:middle])) else (middle, high)
    return outermost(order[:high])


def outermost(names: Sequence[str]) -> list[str]:
    """Names that are inside no other."""
    return [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
