"""fastMRI's masks of lines, seed for seed (the package `fastmri` 0.3, fastmri/data/subsample.py; Zbontar et al. 2018).

A mask is drawn from NumPy's RandomState in the order in which fastMRI draws: first which acceleration, then the lines.
With the seed of a file's name, `seed_of(name)`, it is the mask that fastMRI's validation gives that file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

import numpy as np


def seed_of(name: str) -> tuple[int, ...]:
    """fastMRI's seed of a file: the code points of its name, without the folder."""
    return tuple(map(ord, PurePosixPath(name).name))


def centre(columns: int, count: int) -> slice:
    """The fully sampled columns: of an odd and an even number that do not match, one further right (`pad`)."""
    first = (columns - count + 1) // 2
    return slice(first, first + count)


def _random(columns: int, acceleration: int, count: int, state: np.random.RandomState) -> np.ndarray:
    probability = (columns / acceleration - count) / (columns - count)
    return state.uniform(size=columns) < probability


def _equispaced(columns: int, acceleration: int, count: int, state: np.random.RandomState) -> np.ndarray:
    sampled = np.zeros(columns, dtype=bool)
    sampled[state.randint(0, high=acceleration) :: acceleration] = True
    return sampled


def _equispaced_fraction(
    columns: int, acceleration: int, count: int, state: np.random.RandomState
) -> np.ndarray:
    """The spacing is adjusted, so that with the centre the share is 1 / acceleration."""
    adjusted = (acceleration * (count - columns)) / (count * acceleration - columns)
    offset = state.randint(0, high=round(adjusted))
    sampled = np.zeros(columns, dtype=bool)
    sampled[np.around(np.arange(offset, columns - 1, adjusted)).astype(int)] = True
    return sampled


def _magic(columns: int, acceleration: int, count: int, state: np.random.RandomState) -> np.ndarray:
    """Other lines on the two sides of the centre, none the conjugate of another (Defazio 2019)."""
    offset = state.randint(0, high=acceleration)
    positive, negative = (offset + 1, offset + 2) if offset % 2 == 0 else (offset + 2, offset - 1)
    right = np.zeros((columns + 1) // 2, dtype=bool)
    left = np.zeros(columns // 2, dtype=bool)
    right[positive::acceleration] = True
    left[negative::acceleration] = True
    return np.fft.fftshift(np.concatenate([right, left[::-1]]))


def _adjusted_magic(columns: int, acceleration: int, count: int) -> tuple[int, int]:
    """Central columns and spacing, both whole, that come nearest to 1 / acceleration in all.

    Raises ValueError where the centre is all that is to be sampled: fastMRI then has no spacing to draw from.
    """
    wanted = round(columns / acceleration)
    count = max(min(count, wanted), 1)
    if wanted <= count:
        raise ValueError(
            f"fastmri_magic_fraction: {count} central of {columns} lines leave none at {acceleration}-fold acceleration"
        )
    return count, round(columns / (wanted - count))


FASTMRI_MASKS: dict[str, Callable[[int, int, int, np.random.RandomState], np.ndarray]] = {
    "fastmri_random": _random,
    "fastmri_equispaced": _equispaced,
    "fastmri_equispaced_fraction": _equispaced_fraction,
    "fastmri_magic": _magic,
    "fastmri_magic_fraction": _magic,
}


def fastmri_mask(
    kind: str,
    shape_hw: tuple[int, int],
    accelerations: Sequence[int],
    center_fractions: Sequence[float],
    state: np.random.RandomState,
) -> np.ndarray:
    """A boolean mask (H, W) of whole columns.

    kind: a key of FASTMRI_MASKS. accelerations, center_fractions: pairs, of which one is drawn.
    Raises ValueError for a centre that is all columns, or, with the spacing adjusted, all that are to be sampled.
    """
    columns = shape_hw[1]
    choice = state.randint(len(center_fractions))
    acceleration = accelerations[choice]
    count = round(columns * center_fractions[choice])
    if kind == "fastmri_magic_fraction":
        count, acceleration = _adjusted_magic(columns, acceleration, count)
    if count >= columns or (kind == "fastmri_equispaced_fraction" and count * acceleration >= columns):
        raise ValueError(
            f"{kind}: {count} central of {columns} lines leave none at {acceleration}-fold acceleration"
        )
    lines = FASTMRI_MASKS[kind](columns, acceleration, count, state)
    lines[centre(columns, count)] = True
    return np.broadcast_to(lines, shape_hw).copy()


def padded_columns_left_out(mask: np.ndarray, measured: tuple[int, int] | None) -> np.ndarray:
    """The mask (H, W) without the columns that the scanner filled with zeros (`padding` of fastMRI's `apply_mask`).

    measured: first column that was measured and first after them; None where the file does not say.
    """
    if measured is None:
        return mask
    inside = np.zeros(mask.shape[1], dtype=bool)
    inside[slice(*measured)] = True
    return mask & inside
