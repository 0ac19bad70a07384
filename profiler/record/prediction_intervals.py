"""How far a predicted figure of memory may lie from a GPU's own: one interval for each quantity."""

from __future__ import annotations

import math

from swinmr_profiling.profiler.record.blocks.memory_model import IntervalShares

# Of the prediction, down and up. What is alive: the tracker differs from real runs' by less than 1 % in the tests.
# What is reserved: the public records of GPUs lie within 5 %, cuDNN's workspaces and retries at the limit apart. No
# run of this project has been on a GPU yet.
INTERVAL_SHARES = {"live": (-0.01, 0.01), "reserved": (-0.05, 0.05)}


def interval_bytes(quantity: str, predicted_bytes: int) -> list[int]:
    """[low, high] of a quantity of INTERVAL_SHARES, rounded outwards."""
    low, high = INTERVAL_SHARES[quantity]
    return [math.floor(predicted_bytes * (1 + low)), math.ceil(predicted_bytes * (1 + high))]


def interval_shares() -> IntervalShares:
    """`memory_model.interval_shares`."""
    return IntervalShares(**{quantity: list(shares) for quantity, shares in INTERVAL_SHARES.items()})
