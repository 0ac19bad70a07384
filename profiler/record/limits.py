"""The most and the fewest: of a batch, of training steps, and of runs that a statistic is reported of."""

from __future__ import annotations

import math

# The largest grid dimension of CUDA in y and z: kernels that put the batch there cannot run more, and no image
# network gains anything near it. A larger number is a slip of the finger.
MAX_BATCH_SIZE = 65535
# The optimizer's state appears in the first step of training, and only the third is like all that follow.
MIN_TRAINING_STEPS = 3


def least_runs(percentile: int) -> int:
    """The fewest runs of which a percentile, 1 to 99, is reported (one run is expected to lie beyond it)."""
    return math.ceil(100 / min(percentile, 100 - percentile))


# By the names in the JSON; with fewer it is null.
LEAST_RUNS = {
    "std_ms": 2,
    "iqr_ms": least_runs(75),
    "p90_ms": least_runs(90),
    "p95_ms": least_runs(95),
    "p99_ms": least_runs(99),
}
