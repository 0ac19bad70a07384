"""Sampling masks: one entry point, and the patterns that sample whole lines.

A mask is a boolean array (H, W), True where k-space is sampled, the zero frequency at [H // 2, W // 2]. Lines
are columns: the phase-encoding axis is the last one, as in fastMRI. Every pattern is a pure function of a NumPy
Generator. Counts are held: a draw samples the nominal share to one or two lines (or one point), never by luck
a half or a double of it, and on average meets it exactly, whatever the size (Poisson discs, whose number
cannot be held, to a few thousandths).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from swinmr_profiling.training.degradation import gaussian_masks
from swinmr_profiling.training.degradation.plane_masks import poisson2d, radial, spiral
from swinmr_profiling.training.degradation.random_choice import round_at_random, weighted_choice

# Masks that SwinMR has files of. Until a file is given, every output of a drawn one says so.
SWINMR_KINDS = ("gaussian1d", "gaussian2d", "radial", "spiral", "poisson2d")
NOT_SWINMRS = "not SwinMR's mask file: figures are not comparable"


def central_lines(lines: int, center_fraction: float, fraction: float) -> slice:
    """The fully sampled central lines: round(lines x center_fraction) of them, never more than are sampled."""
    count = min(round(lines * center_fraction), int(lines * fraction))
    first = lines // 2 - count // 2
    return slice(first, first + count)


def random1d(lines: int, fraction: float, center_fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Lines at random around a dense centre, as a boolean (lines,).

    Each outer line is sampled with p = (N / R - Nc) / (N - Nc), fastMRI's probability (Zbontar et al. 2018).
    fastMRI draws the lines one by one, so that its share varies by draw; here the count is held.
    """
    centre = central_lines(lines, center_fraction, fraction)
    outer = np.ones(lines)
    outer[centre] = 0
    count = round_at_random(lines * fraction - (centre.stop - centre.start), rng)
    sampled = np.zeros(lines, dtype=bool)
    sampled[weighted_choice(outer, count, rng)] = True
    sampled[centre] = True
    return sampled


def gaussian1d(lines: int, fraction: float, center_fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Lines distributed as in SwinMR's files, at least the central ones sampled, as a boolean (lines,)."""
    centre = central_lines(lines, center_fraction, fraction)
    return gaussian_masks.gaussian1d(lines, fraction, centre, rng)


def equispaced1d(lines: int, fraction: float, center_fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Every R'-th line from a random offset, and a dense centre, as a boolean (lines,).

    R' = R (Nc - N) / (Nc R - N), so that the centre is inside the promised acceleration R (fastMRI's
    EquispacedMaskFractionFunc); without it, R = 4 with a centre of 8 % would be 3.2.
    """
    sampled = np.zeros(lines, dtype=bool)
    centre = central_lines(lines, center_fraction, fraction)
    count = centre.stop - centre.start
    outer = lines * fraction - count
    if outer > 0:
        spacing = (lines - count) / outer
        # A real-valued offset: each line then has the same probability 1 / R', also for a fractional R'.
        positions = np.floor(np.arange(rng.uniform(0, spacing), lines, spacing)).astype(int)
        sampled[positions] = True
    sampled[centre] = True
    return sampled


LINE_MASKS: dict[str, Callable[[int, float, float, np.random.Generator], np.ndarray]] = {
    "random1d": random1d,
    "equispaced1d": equispaced1d,
    "gaussian1d": gaussian1d,
}
PLANE_MASKS: dict[str, Callable[[tuple[int, int], float, np.random.Generator], np.ndarray]] = {
    "gaussian2d": gaussian_masks.gaussian2d,
    "radial": radial,
    "spiral": spiral,
    "poisson2d": poisson2d,
}


def draw_mask(
    kind: str,
    shape_hw: tuple[int, int],
    fraction: float,
    rng: np.random.Generator,
    center_fraction: float = 0.08,
) -> np.ndarray:
    """A boolean mask (H, W).

    Args:
        kind: "random1d", "equispaced1d", "gaussian1d", "gaussian2d", "radial", "spiral" or "poisson2d".
        shape_hw: (H, W).
        fraction: nominal sampled share of k-space, above 0, at most 1, centre included.
        rng: all randomness; equal states give equal masks.
        center_fraction: share of the lines that are fully sampled in the centre; only for the line masks.

    Raises:
        ValueError: for an unknown kind or a share outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"sampled fraction {fraction} is not above 0 and at most 1")
    if fraction == 1:
        return np.ones(shape_hw, dtype=bool)
    if kind in LINE_MASKS:
        lines = LINE_MASKS[kind](shape_hw[1], fraction, center_fraction, rng)
        if not lines.any():  # a share of less than one line
            lines[shape_hw[1] // 2] = True
        return np.broadcast_to(lines, shape_hw).copy()
    if kind in PLANE_MASKS:
        return PLANE_MASKS[kind](shape_hw, fraction, rng)
    raise ValueError(f"mask {kind!r} is not one of {', '.join([*LINE_MASKS, *PLANE_MASKS])}")
