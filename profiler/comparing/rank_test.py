"""The Mann-Whitney test: whether two series of timings come from one distribution.

Mann and Whitney 1947, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other".
Timings have long tails and several modes, so ranks are compared and no mean; nothing is assumed of the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

# With more samples on both sides than this, or with ties, the normal approximation is used (SciPy's own rule).
EXACT_UP_TO = 8


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value. Exact where a series has at most 8 values and no two are equal, else by the normal
    approximation with correction for ties and continuity. Raises ValueError for an empty series."""
    if not first or not second:
        raise ValueError("an empty series cannot be tested")
    pooled = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum, seen, tie_sizes = 0.0, 0, []
    for _, group in groupby(pooled, key=lambda item: item[0]):
        members = [origin for _, origin in group]
        middle_rank = seen + (len(members) + 1) / 2
        rank_sum += middle_rank * members.count(0)
        seen += len(members)
        tie_sizes.append(len(members))
    sizes = len(first), len(second)
    statistic = rank_sum - sizes[0] * (sizes[0] + 1) / 2
    larger = max(statistic, sizes[0] * sizes[1] - statistic)
    if min(sizes) <= EXACT_UP_TO and max(tie_sizes) == 1:
        return min(1.0, 2 * _exact_tail(*sizes, math.ceil(larger)))
    return _normal_tails(*sizes, larger, tie_sizes)


def smallest_p(first: int, second: int) -> float:
    """The smallest p-value that series of these lengths can give: that of two that do not overlap at all."""
    return min(1.0, 2 / math.comb(first + second, first))


def _exact_tail(first: int, second: int, at_least: int) -> float:
    """P(U >= at_least) if all orders are equally likely.

    The number of orders with U = u is the coefficient of q^u in the Gaussian binomial coefficient, the product of
    (1 - q^(second + i)) / (1 - q^i) for i = 1 to first.
    """
    if first > second:
        first, second = second, first  # the distribution is the same, the loop shorter
    top = first * second
    counts = [1] + [0] * top
    for i in range(1, first + 1):
        for degree in range(top, second + i - 1, -1):
            counts[degree] -= counts[degree - second - i]
        for degree in range(i, top + 1):
            counts[degree] += counts[degree - i]
    return sum(counts[at_least:]) / math.comb(first + second, first)


def _normal_tails(first: int, second: int, larger: float, tie_sizes: Sequence[int]) -> float:
    total = first + second
    ties = sum(size**3 - size for size in tie_sizes) / (total * (total - 1))
    variance = first * second / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0  # all values are equal
    deviations = (larger - first * second / 2 - 0.5) / math.sqrt(variance)
    return min(1.0, math.erfc(max(deviations, 0.0) / math.sqrt(2)))
