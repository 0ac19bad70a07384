"""Sampling masks that vary along both axes: radial, spiral, variable-density Poisson disc.

A mask is a boolean array (H, W), the zero frequency at [H // 2, W // 2], always sampled.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from swinmr_profiling.training.degradation.random_choice import round_at_random

GOLDEN_ANGLE = np.pi * (np.sqrt(5) - 1) / 2
# Calibrations (of a spiral's turns, of a disc's growth) end when the interval is this narrow, relative.
CALIBRATION_TOLERANCE = 1e-3


def relative_radius(shape_hw: tuple[int, int]) -> np.ndarray:
    """Distance from the zero frequency as a float (H, W), 1 at the middle of each edge, about 1.41 in corners."""
    height, width = shape_hw
    y = (np.arange(height) - height // 2) / (height / 2)
    x = (np.arange(width) - width // 2) / (width / 2)
    return np.hypot(y[:, None], x[None, :])


def _first_points(rows: np.ndarray, columns: np.ndarray, shape_hw: tuple[int, int]) -> np.ndarray:
    """Flat indices of the grid points that a path passes, each once, in the order of the first visit.

    rows, columns: positions along the path in relative coordinates, -1 to 1 edge to edge.
    """
    height, width = shape_hw
    row = np.rint(rows * height / 2).astype(int) + height // 2
    column = np.rint(columns * width / 2).astype(int) + width // 2
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    points = row[inside] * width + column[inside]
    _, first = np.unique(points, return_index=True)
    return points[np.sort(first)]


def _mask_of(points: np.ndarray, shape_hw: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(shape_hw, dtype=bool)
    mask.reshape(-1)[points] = True
    return mask


def radial(shape_hw: tuple[int, int], fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Spokes through the centre, golden angle apart from a random first one (Winkelmann et al. 2007).

    Spokes reach into the corners; the last one ends where the share is reached.
    """
    count = max(1, round_at_random(shape_hw[0] * shape_hw[1] * fraction, rng))
    start = rng.uniform(0, np.pi)
    side = max(shape_hw)
    # A step of one pixel along the longer axis leaves no gaps. From the centre outwards, in both directions.
    steps = np.arange(int(np.ceil(side / np.sqrt(2))) + 1) * (2 / side)
    reach = np.stack([steps, -steps], axis=1).reshape(-1)
    spokes = int(np.ceil(side * fraction))
    while True:
        angles = start + GOLDEN_ANGLE * np.arange(spokes)
        rows, columns = np.outer(np.sin(angles), reach), np.outer(np.cos(angles), reach)
        points = _first_points(rows.reshape(-1), columns.reshape(-1), shape_hw)
        if len(points) >= count:
            return _mask_of(points[:count], shape_hw)
        # Not `* 2` at once: the spokes' points are sorted, which is the whole cost.
        spokes = int(spokes * 1.4) + 1


def _spiral_points(shape_hw: tuple[int, int], turns: float, start: float, direction: int) -> np.ndarray:
    """A spiral whose radius grows with the square of the angle: dense centre, ever wider turns."""
    side = max(shape_hw)
    # The arc is sqrt(2) x pi x turns x side / 3 pixels long; equal steps of it need t as the cube root.
    steps = int(np.ceil(np.sqrt(2) * np.pi * turns * side / 3 * 1.1 + np.sqrt(2) * side)) + 1
    t = np.cbrt(np.linspace(0, 1, steps))
    angle = start + direction * 2 * np.pi * turns * t
    radius = np.sqrt(2) * t**2
    return _first_points(radius * np.sin(angle), radius * np.cos(angle), shape_hw)


@lru_cache(maxsize=64)
def _spiral_turns(shape_hw: tuple[int, int], fraction: float) -> float:
    """Turns after which the spiral has passed the share of k-space (bisected)."""
    wanted = shape_hw[0] * shape_hw[1] * fraction
    low, high = 0.0, 1.0
    while len(_spiral_points(shape_hw, high, 0.0, 1)) < wanted:
        low, high = high, 2 * high
    while high - low > CALIBRATION_TOLERANCE * high:
        middle = (low + high) / 2
        passed = len(_spiral_points(shape_hw, middle, 0.0, 1))
        low, high = (low, middle) if passed >= wanted else (middle, high)
    return high


def spiral(shape_hw: tuple[int, int], fraction: float, rng: np.random.Generator) -> np.ndarray:
    """One spiral from the centre into the corners, denser inside, with random first angle and direction."""
    count = max(1, round_at_random(shape_hw[0] * shape_hw[1] * fraction, rng))
    start, direction = rng.uniform(0, 2 * np.pi), int(rng.choice([-1, 1]))
    turns = _spiral_turns(shape_hw, fraction)
    while len(points := _spiral_points(shape_hw, turns, start, direction)) < count:
        turns *= 1.01
    return _mask_of(points[:count], shape_hw)


def _disc_rows(square: int) -> list[tuple[int, int]]:
    """(row, half width) of the rows of an open disc: all points whose squared distance is below `square`."""
    reach = isqrt(square - 1)
    return [(dy, isqrt(square - 1 - dy**2)) for dy in range(-reach, reach + 1)]


def _throw_darts(shape_hw: tuple[int, int], growth: float, rng: np.random.Generator) -> np.ndarray:
    """Tries every grid point once, in random order; a point is taken unless a taken one's disc covers it.

    The disc of a point has the radius growth x relative distance from the centre, in pixels.
    """
    height, width = shape_hw
    radius = growth * relative_radius(shape_hw)
    reach = int(np.ceil(radius.max()))
    # A margin as wide as the largest disc spares every disc the clipping at the edges.
    stride = width + 2 * reach
    covered = bytearray((height + 2 * reach) * stride)
    # Squared distances are whole numbers, so radii with the same rounded-up square cover the same points.
    squares = np.ceil(radius**2).astype(int).reshape(-1).tolist()
    discs: dict[int, list[tuple[int, bytes]]] = {}
    taken = np.zeros(height * width, dtype=bool)
    for point in rng.permutation(height * width).tolist():
        y, x = divmod(point, width)
        place = (y + reach) * stride + x + reach
        if covered[place]:
            continue
        taken[point] = True
        square = squares[point]
        if square <= 1:
            continue
        if square not in discs:
            rows = _disc_rows(square)
            discs[square] = [(dy * stride - half, b"\1" * (2 * half + 1)) for dy, half in rows]
        for shift, row in discs[square]:
            covered[place + shift : place + shift + len(row)] = row
    return taken.reshape(shape_hw)


def _calibration_share(shape_hw: tuple[int, int], growth: float) -> float:
    """Mean share of dart throwing with fixed darts; small grids are thrown at several times."""
    repeats = min(16, max(1, 256 * 256 // (shape_hw[0] * shape_hw[1])))
    return float(np.mean([_throw_darts(shape_hw, growth, np.random.default_rng(i)) for i in range(repeats)]))


@lru_cache(maxsize=64)
def _disc_growth(shape_hw: tuple[int, int], fraction: float) -> float:
    """Growth of the discs at which dart throwing ends with the share of k-space (bisected)."""
    low, high = 0.0, 1.0
    while _calibration_share(shape_hw, high) > fraction:
        low, high = high, 2 * high
    while high - low > CALIBRATION_TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _calibration_share(shape_hw, middle) > fraction else (low, middle)
    return (low + high) / 2


def poisson2d(shape_hw: tuple[int, int], fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Variable-density Poisson disc: random points that keep a distance which grows with the frequency.

    Dart throwing (Cook 1986; for compressed sensing Vasanawala et al. 2011) on the grid, until nothing fits.
    Two points are never closer than the smaller of their two radii; near the centre, where that is below one
    pixel, every point is sampled.
    """
    return _throw_darts(shape_hw, _disc_growth(shape_hw, fraction), rng)
