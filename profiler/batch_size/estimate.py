"""What a batch is expected to take, to know where to look next; never an answer by itself."""

from __future__ import annotations

from collections.abc import Callable


def expected_bytes(size: int, measured: dict[int, int], predict: Callable[[int], int] | None) -> int | None:
    """Expected bytes of a batch: the prediction, corrected by the largest measurement.

    measured: batch -> bytes. Without a prediction the growth between the two largest measurements says where to look.
    None where nothing is known, or where the size is beyond what can be predicted.
    """
    largest = max(measured, default=None)
    if predict is None:
        return _by_growth(size, measured)
    try:
        predicted = int(predict(size))
        if largest is None:
            return predicted
        return predicted * measured[largest] // max(int(predict(largest)), 1)
    except (OverflowError, ValueError):
        return None


def _by_growth(size: int, measured: dict[int, int]) -> int | None:
    if len(measured) < 2:
        return None
    low, high = sorted(measured)[-2:]
    growth = (measured[high] - measured[low]) // (high - low)
    # A peak that does not grow yet (the optimizer's, say) promises nothing: the next guess triples at most.
    growth = max(growth, measured[high] // (2 * high))
    return measured[high] + growth * (size - high)


def largest_expected(lower: int, limit: int, within_bytes: int, estimate: Callable[[int], int | None]) -> int:
    """The largest batch from `lower` on, at most `limit`, that is expected to take at most `within_bytes`."""

    def fits(size: int) -> bool:
        expected = estimate(size)
        return expected is not None and expected <= within_bytes

    if lower >= limit or fits(limit):
        return max(lower, limit)
    high = lower + 1
    while fits(high):
        lower, high = high, min(high * 2, limit)
    while high - lower > 1:
        middle = (lower + high) // 2
        lower, high = (middle, high) if fits(middle) else (lower, middle)
    return lower
