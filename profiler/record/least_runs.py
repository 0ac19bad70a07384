"""The fewest runs that a statistic is reported of; with fewer it is null."""

from __future__ import annotations

import math


def least_runs(percentile: int) -> int:
    """The fewest runs of which a percentile, 1 to 99, is reported (one run is expected to lie beyond it)."""
    return math.ceil(100 / min(percentile, 100 - percentile))


# By the names in the JSON.
LEAST_RUNS = {
    "std_ms": 2,
    "iqr_ms": least_runs(75),
    "p90_ms": least_runs(90),
    "p95_ms": least_runs(95),
    "p99_ms": least_runs(99),
}
