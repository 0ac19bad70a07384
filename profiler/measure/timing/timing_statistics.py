"""Statistics of repeated latency samples, derived from the raw samples and from nothing else.

Pure functions on lists of milliseconds. Quantiles are linear between order statistics (Hyndman and Fan 1996,
type 7, numpy's default).

What too few runs do not tell is None. The p-th percentile needs 100 / min(p, 100 - p) runs, so that one of them is
expected to lie beyond it: 10 for p90, 20 for p95, 100 for p99, and 4 for the quartiles, so for their range. With fewer
it would be the slowest run under another name, which lies on average at the quantile n / (n + 1) (David and Nagaraja,
Order Statistics, 2003, chapter 3). A deviation needs 2 runs; the 95 % interval of the median needs 6: of five,
[min, max] covers 93.75 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise

from swinmr_profiling.profiler.record.limits import LEAST_RUNS

CONFIDENCE = 0.95


# A spread of a tenth of the median is where two networks that differ by 10 % can no longer be told apart by
# single runs; a quiet GPU stays under 1 %, a quiet CPU under 5 %. Few runs estimate a spread badly: it is
# believed when it is over the tenth by its own standard error (relative, of a normal, over sqrt(n):
# 1 / (2 pdf(0.6745) 1.349) = 1.166), else one quiet series of 15 in forty would be called noisy.
NOISY_IQR_SHARE = 0.10
IQR_RELATIVE_STANDARD_ERROR = 1.166
# Drift matters when the last third differs from the first by more than 5 %, and is believed when the ranks of
# the two thirds differ by 2.8 standard errors (Mann and Whitney 1947; one false alarm in 200, whatever the
# distribution: medians of two modes jump by themselves). Six against six runs can just show that.
DRIFT_SHARE = 0.05
DRIFT_STANDARD_ERRORS = 2.8
MIN_RUNS_FOR_DRIFT = 18
# Two modes: a gap in the sorted samples, with at least a fifth of the runs on each side, whose middles differ by
# more than 5 % of the median, and wider than twice the spread of either side. In fewer than 20 runs such gaps
# are common without a cause.
MODE_SHARE = 0.20
MODE_DISTANCE_SHARE = 0.05
MODE_GAP_SPREADS = 2.0
MIN_RUNS_FOR_MODES = 20
# Far outliers after Tukey: beyond the third quartile by three inter-quartile ranges (4.7 standard deviations of
# a normal), and beyond the median by a tenth, below which nobody notices. One in a hundred is a page fault or a
# timer tick; one in twenty is interference. A single one proves nothing.
OUTLIER_IQRS = 3.0
OUTLIER_SHARE_OF_MEDIAN = 0.10
OUTLIER_SHARE_OF_RUNS = 0.05
MIN_OUTLIERS = 2
MIN_RUNS_FOR_OUTLIERS = 10


class TimingWarning(str, Enum):
    """What is wrong with a series of samples; the values are the codes in the JSON."""

    NOISY = "noisy"
    DRIFT = "drift"
    TWO_MODES = "two_modes"
    OUTLIERS = "outliers"
    PROCESSES_DIFFER = "processes_differ"


@dataclass(frozen=True)
class TimingStatistics:
    """Summary of the latency of one forward pass of a whole batch, in milliseconds."""

    num_runs: int
    mean_ms: float
    std_ms: float | None
    min_ms: float
    max_ms: float
    median_ms: float
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    iqr_ms: float | None
    ci95_median_ms: tuple[float, float] | None


def quantile(ordered: Sequence[float], probability: float) -> float:
    """Quantile of samples sorted in ascending order, linear between order statistics."""
    position = (len(ordered) - 1) * probability
    low = math.floor(position)
    return ordered[low] + (ordered[math.ceil(position)] - ordered[low]) * (position - low)


def interquartile_range(samples: Sequence[float]) -> float:
    """Third less first quartile, in the samples' unit."""
    ordered = sorted(samples)
    return quantile(ordered, 0.75) - quantile(ordered, 0.25)


# Asked again and again for the same numbers of runs, and the sums are long.
@cache
def interval_rank(count: int, confidence: float = CONFIDENCE) -> int | None:
    """Rank k (from 1) such that [k-th smallest, k-th largest] covers the median with at least `confidence`.

    Exact and free of any distribution: the number of samples under the median is binomial(count, 1/2), so the
    coverage is 1 - 2 P(binomial <= k - 1). None when even [min, max] covers less.
    """
    rank = None
    outcomes = tail = 1  # of 2^count: with `below` samples under the median, and with at most that many
    for below in range(count // 2):
        if 1 - 2 * tail / 2**count < confidence:
            break
        rank = below + 1
        outcomes = outcomes * (count - below) // (below + 1)
        tail += outcomes
    return rank


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """95 % confidence interval of the median, or None with fewer than six samples."""
    rank = interval_rank(len(samples))
    if rank is None:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[-rank]


def half_width_share(samples: Sequence[float]) -> float | None:
    """Half the width of the median's interval over the median: the stopping criterion of a measurement."""
    return interval_share(median_interval(samples), statistics.median(samples) if samples else 0.0)


def interval_share(interval: tuple[float, float] | None, middle: float) -> float | None:
    """Half an interval's width as a share of the median, or None where there is no interval or no time."""
    return None if interval is None or middle <= 0 else (interval[1] - interval[0]) / 2 / middle


def summarise(samples_ms: Sequence[float]) -> TimingStatistics:
    """All figures of a report from raw samples; None what so few do not tell. Raises ValueError without a sample."""
    if not samples_ms:
        raise ValueError("no samples")
    ordered = sorted(samples_ms)
    count = len(ordered)

    def known(name: str, figure: Callable[[], float]) -> float | None:
        return figure() if count >= LEAST_RUNS[name] else None

    return TimingStatistics(
        num_runs=count,
        mean_ms=statistics.fmean(ordered),
        std_ms=known("std_ms", lambda: statistics.stdev(ordered)),
        min_ms=ordered[0],
        max_ms=ordered[-1],
        median_ms=statistics.median(ordered),
        p90_ms=known("p90_ms", lambda: quantile(ordered, 0.90)),
        p95_ms=known("p95_ms", lambda: quantile(ordered, 0.95)),
        p99_ms=known("p99_ms", lambda: quantile(ordered, 0.99)),
        iqr_ms=known("iqr_ms", lambda: interquartile_range(ordered)),
        ci95_median_ms=median_interval(ordered),
    )


def rank_difference(first: Sequence[float], last: Sequence[float]) -> float:
    """How far the ranks of `last` lie above those of `first`, in standard errors (the z of Mann and Whitney)."""
    above = sum((late > early) + 0.5 * (late == early) for early in first for late in last)
    pairs = len(first) * len(last)
    return (above - pairs / 2) / math.sqrt(pairs * (len(first) + len(last) + 1) / 12)


def has_drift(samples: Sequence[float]) -> bool:
    """Whether the last third of the runs differs from the first by more than chance and more than 5 %."""
    count = len(samples)
    if count < MIN_RUNS_FOR_DRIFT:
        return False
    third = count // 3
    first, last = samples[:third], samples[-third:]
    change = abs(statistics.median(last) - statistics.median(first))
    return (
        change > DRIFT_SHARE * statistics.median(samples)
        and abs(rank_difference(first, last)) >= DRIFT_STANDARD_ERRORS
    )


def spread_without_drift(samples: Sequence[float]) -> float:
    """Inter-quartile range that the runs would have around a slow change, from successive differences.

    A ramp shifts all differences alike and a step spoils one, so neither widens their quartiles; independent
    noise makes them sqrt(2) times as wide as its own.
    """
    return interquartile_range([later - earlier for earlier, later in pairwise(samples)]) / math.sqrt(2)


def has_two_modes(samples: Sequence[float]) -> bool:
    """Whether the samples fall into two groups with a wide gap between (a clock that changes, two paths)."""
    count = len(samples)
    if count < MIN_RUNS_FOR_MODES:
        return False
    ordered = sorted(samples)
    smallest_side = math.ceil(MODE_SHARE * count)
    split = max(range(smallest_side, count - smallest_side + 1), key=lambda i: ordered[i] - ordered[i - 1])
    fast, slow = ordered[:split], ordered[split:]
    distance = statistics.median(slow) - statistics.median(fast)
    spread = max(interquartile_range(fast), interquartile_range(slow))
    return (
        distance > MODE_DISTANCE_SHARE * statistics.median(ordered)
        and slow[0] - fast[-1] > MODE_GAP_SPREADS * spread
    )


def has_outliers(samples: Sequence[float]) -> bool:
    """Whether at least two runs and one in twenty are far slower than the rest."""
    count = len(samples)
    if count < MIN_RUNS_FOR_OUTLIERS:
        return False
    ordered = sorted(samples)
    upper_quartile = quantile(ordered, 0.75)
    fence = max(
        upper_quartile + OUTLIER_IQRS * interquartile_range(ordered),
        statistics.median(ordered) * (1 + OUTLIER_SHARE_OF_MEDIAN),
    )
    return sum(sample > fence for sample in ordered) >= max(MIN_OUTLIERS, OUTLIER_SHARE_OF_RUNS * count)


def timing_warnings(samples: Sequence[float]) -> list[TimingWarning]:
    """What a reader must know of the series, in the order of the runs; the most specific names win.

    A drift or two modes widen the spread by themselves: a drifting series is called noisy only if it is so
    around its drift, and one of two modes never.
    """
    found: list[TimingWarning] = []
    if not samples or statistics.median(samples) <= 0:
        return found
    spread = interquartile_range(samples)
    if has_drift(samples):
        found.append(TimingWarning.DRIFT)
        spread = spread_without_drift(samples)
    elif has_two_modes(samples):
        return [TimingWarning.TWO_MODES]
    elif has_outliers(samples):
        found.append(TimingWarning.OUTLIERS)
    limit = NOISY_IQR_SHARE * statistics.median(samples)
    # Of fewer runs the inter-quartile range is not reported, so nothing is said of it either.
    known = len(samples) >= LEAST_RUNS["iqr_ms"]
    if known and spread > limit * (1 + IQR_RELATIVE_STANDARD_ERROR / math.sqrt(len(samples))):
        found.append(TimingWarning.NOISY)
    return found
