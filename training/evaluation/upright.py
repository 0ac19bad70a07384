"""How a slice is shown: upright, by the directions that its file names, and near enough to see the object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from swinmr_profiling.training.volumes import Volume

# Which direction points up on a page, the first that a slice has: a head stands on its neck, else it looks up.
UP = {"S", "A"}
VERTICAL = ("SI", "AP", "LR")
# The radiologist's convention: the patient's right is on the left of the page, and a profile looks to the left.
TO_THE_RIGHT = {"L", "P", "I"}
# Darker than this share of the brightest is background; the object is where at least this share of a line is not.
BACKGROUND_SHARE, LINE_SHARE, MARGIN_SHARE = 0.1, 0.03, 0.04

Axes = tuple[str, str]


def axes_by_volume(volumes: Sequence[Volume]) -> dict[str, Axes]:
    """By volume's name, where a file says it: the directions in which height and width grow, such as ("R", "A")."""
    return {volume.name: volume.axes for volume in volumes if volume.axes is not None}


def axes_of_slice(name: str, by_volume: Mapping[str, Axes]) -> Axes | None:
    """Of "volume, slice n"."""
    return by_volume.get(name.rpartition(", slice ")[0])


def upright(image: np.ndarray, axes: Axes | None) -> np.ndarray:
    """The image (H, W) turned and mirrored so that it stands as a radiologist expects; None: as it is in the file."""
    if axes is None:
        return image
    height, width = axes
    if _rank(width) < _rank(height):
        image, height, width = image.T, width, height
    if height in UP or height == "R":
        image = image[::-1]
    if width not in TO_THE_RIGHT:
        image = image[:, ::-1]
    return image


def _rank(direction: str) -> int:
    return next(number for number, pair in enumerate(VERTICAL) if direction in pair)


def object_box(target: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of an image (H, W) that hold the object, with a margin; all of it where nothing stands out."""
    bright = target > BACKGROUND_SHARE * np.percentile(target, 99.5)
    found = []
    for axis, length in ((1, target.shape[0]), (0, target.shape[1])):
        lines = np.flatnonzero(bright.mean(axis=axis) >= LINE_SHARE)
        if not len(lines):
            return slice(0, target.shape[0]), slice(0, target.shape[1])
        margin = round(MARGIN_SHARE * length)
        found.append(slice(max(int(lines[0]) - margin, 0), min(int(lines[-1]) + margin + 1, length)))
    return found[0], found[1]
