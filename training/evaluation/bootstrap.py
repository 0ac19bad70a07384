"""How far a mean would move with other volumes: the percentile bootstrap (Efron 1979), volumes drawn whole.

Slices of one volume are alike, so they are never drawn singly: that would promise a precision that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 0
# With fewer volumes percentile intervals are known to be too narrow (Efron and Tibshirani 1993, chapter 14).
FEW_VOLUMES = 20
BLOCK = 1000


def volume_interval(
    sums: Sequence[float], counts: Sequence[int], resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """95 % interval of sum(sums) / sum(counts) over volumes drawn with replacement.

    Args:
        sums: per volume, the sum of its units' values (its slices', or its own one value).
        counts: per volume, how many units those are; volumes without any are left out.
        resamples, seed: number of draws, and what makes them repeatable.

    Returns:
        (low, high), or None with fewer than 2 volumes.
    """
    kept = [(total, count) for total, count in zip(sums, counts, strict=True) if count]
    if len(kept) < 2:
        return None
    totals, units = np.array(kept, dtype=np.float64).T
    rng = np.random.default_rng(seed)
    means = []
    # In blocks: all draws of thousands of volumes at once would not fit into memory.
    for first in range(0, resamples, BLOCK):
        draws = min(BLOCK, resamples - first)
        drawn = rng.multinomial(len(kept), np.full(len(kept), 1 / len(kept)), size=draws)
        means.append(drawn @ totals / (drawn @ units))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return float(low), float(high)


def describe(volumes: int, *more_notes: str) -> dict[str, object]:
    """The `bootstrap` block of a summary: how intervals were made, and what they do not say."""
    notes = ["spread between volumes of this test set only: not between training runs, scanners or masks"]
    notes += more_notes
    if volumes < 2:
        notes.append(f"{volumes} volume: an interval over volumes needs at least 2, so it is null")
    elif volumes < FEW_VOLUMES:
        notes.append(f"{volumes} volumes: with fewer than {FEW_VOLUMES} such intervals are too narrow")
    return {
        "confidence": CONFIDENCE,
        "method": "percentile bootstrap, whole volumes drawn with replacement; differences are paired by volume",
        "resamples": RESAMPLES,
        "seed": SEED,
        "volumes": volumes,
        "notes": notes,
    }
