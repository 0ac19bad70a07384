"""The rule of the largest batch, where what the allocator reserves may fall as the batch grows.

Going up from 1: the first batch that fits and of whose next max(16, 1 %) none fits. A step of one that does not fit
ends nothing: segments are rounded up and reused, and one batch more may reserve gigabytes less.
"""

from __future__ import annotations

from collections.abc import Callable

LEAST_STRETCH = 16


def stretch(batch_size: int) -> int:
    """How many of the next batches must not fit: 16, or 1 % rounded up where that is more."""
    return max(LEAST_STRETCH, -(-batch_size // 100))


def largest_by_rule(fits: Callable[[int], bool], last_possible: int) -> int | None:
    """The batch of the rule, None where nothing fits; no batch beyond `last_possible` fits.

    From one that fits the search goes on at the farthest of its stretch that fits. Those between need no look: that
    one lies in their stretch, too, since a stretch never gets shorter.
    """
    current = next((batch for batch in range(1, last_possible + 1) if fits(batch)), None)
    while current is not None:
        farthest = min(current + stretch(current), last_possible)
        further = next((batch for batch in range(farthest, current, -1) if fits(batch)), None)
        if further is None:
            return current
        current = further
    return None
