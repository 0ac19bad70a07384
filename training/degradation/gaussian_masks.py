"""Gaussian masks, distributed as the mask files of SwinMR are: a Gaussian over a uniform floor, a full centre.

The files' shares by distance from the zero frequency stand in swinmr_shares.json, for nominally 1 to 50 % of k-space;
shares between are interpolated. The draws are others than the files': figures are not comparable with SwinMR's until
its own file is given.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

SHARES_FILE = Path(__file__).with_name("swinmr_shares.json")
# The side that the file's distances are of.
SIDE = 256
# Halvings of the interval in which the shift of all shares is looked for.
BISECTIONS = 60


@lru_cache(maxsize=1)
def _files() -> dict[str, Any]:
    return json.loads(SHARES_FILE.read_text(encoding="utf-8"))


def _of_fraction(rows: dict[str, Any], fraction: float, at_full: Any) -> np.ndarray:
    """A quantity of the files between their percentages: 0 at 0 %, `at_full` at 100 %."""
    known = np.array([0.0, *(float(percent) / 100 for percent in rows), 1.0])
    values = np.array([np.zeros_like(np.asarray(at_full)), *rows.values(), at_full], dtype=float)
    above = int(np.clip(np.searchsorted(known, fraction), 1, len(known) - 1))
    weight = (fraction - known[above - 1]) / (known[above] - known[above - 1])
    return (1 - weight) * values[above - 1] + weight * values[above]


def _probabilities(kind: str, distance: np.ndarray, fraction: float, full: np.ndarray) -> np.ndarray:
    """Probability of every point to be sampled, flat, of the sum size x fraction. `full`: points that always are.

    distance: from the zero frequency in pixels of a side of 256. In each ring the mean is that of SwinMR's files;
    where their sum is another (the 1-D file of "20 %" samples 21.9 %), all that are neither 0 nor 1 shift alike.
    """
    table = _files()[kind]
    shares = _of_fraction(table["share"], fraction, np.ones(len(table["edges"]) - 1))
    ring = np.clip(np.searchsorted(table["edges"], distance, side="right") - 1, 0, len(shares) - 1)
    points = np.bincount(ring, minlength=len(shares))
    always = np.bincount(ring[full], minlength=len(shares))
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(points > always, (shares * points - always) / (points - always), 1.0)
    rest = np.clip(rest, 0, 1)
    probability = np.where(full, 1.0, rest[ring])
    wanted, free = distance.size * fraction, ~full
    low, high = -1.0, 1.0
    for _ in range(BISECTIONS):
        shift = (low + high) / 2
        shifted = np.clip(rest + shift, 0, 1)
        # Rings that are full in the files stay so while the others can give way.
        shifted = np.where((rest == 1) & (shift < 0) & (rest.min() + shift > 0), 1.0, shifted)
        total = float((points - always) @ shifted) + int(full.sum())
        low, high = (shift, high) if total < wanted else (low, shift)
    return np.where(free, shifted[ring], probability)


def _draw(probability: np.ndarray, rank: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Boolean, flat: each point with its probability, and the number held (to one), in all and in every ring.

    Systematic sampling (Madow 1949): points in random order within their ring lie end to end on a line, each as long
    as its probability, and a comb of spacing 1 with a random first tooth chooses.
    """
    certain = probability >= 1
    open_points = np.flatnonzero(~certain & (probability > 0))
    order = open_points[rng.permutation(len(open_points))]
    order = order[np.argsort(rank[order], kind="stable")]
    ends = np.floor(np.cumsum(probability[order]) + rng.random())
    chosen = np.diff(ends, prepend=0.0) > 0
    sampled = certain.copy()
    sampled[order[chosen]] = True
    return sampled


@lru_cache(maxsize=16)
def _line_plan(lines: int, fraction: float, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    distance = np.abs(np.arange(lines) - lines // 2) * (SIDE / lines)
    run = float(_of_fraction(_files()["gaussian1d"]["full_each_side"], fraction, float(SIDE)))
    full = distance < run
    full[first:stop] = True
    if full.sum() > lines * fraction:
        full = np.zeros(lines, dtype=bool)
        full[first:stop] = True
    return _probabilities("gaussian1d", distance, fraction, full), distance


def gaussian1d(lines: int, fraction: float, centre: slice, rng: np.random.Generator) -> np.ndarray:
    """Lines as in SwinMR's Gaussian 1-D files, as a boolean (lines,); those of `centre` are sampled in any case."""
    probability, distance = _line_plan(lines, fraction, centre.start, centre.stop)
    return _draw(probability, distance, rng)


@lru_cache(maxsize=8)
def _plane_plan(shape_hw: tuple[int, int], fraction: float) -> tuple[np.ndarray, np.ndarray]:
    height, width = shape_hw
    y = (np.arange(height) - height // 2) * (SIDE / height)
    x = (np.arange(width) - width // 2) * (SIDE / width)
    distance = np.hypot(y[:, None], x[None, :]).reshape(-1)
    full = distance == 0
    ring = np.searchsorted(_files()["gaussian2d"]["edges"], distance, side="right")
    return _probabilities("gaussian2d", distance, fraction, full), ring


def gaussian2d(shape_hw: tuple[int, int], fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Points as in SwinMR's Gaussian 2-D files, as a boolean (H, W); the zero frequency is sampled in any case."""
    probability, ring = _plane_plan(shape_hw, fraction)
    return _draw(probability, ring, rng).reshape(shape_hw)
