"""Ground truth, zero-filled, reconstruction and error map of some slices in one PNG.

Slices stand upright, by the directions that their files name, and near enough to see the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from swinmr_profiling.configs.writing.atomic_files import replacing
from swinmr_profiling.training.errors import require
from swinmr_profiling.training.evaluation.evaluation import Picture
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


COLUMNS = ("ground truth", "zero-filled", "reconstruction", "error of the reconstruction")
DEVIATION_COLUMN = "standard deviation of the samples"
ROW_INCHES, TITLE_INCHES, DPI = 2.6, 0.7, 100
COLOUR_STEPS = 1024
# As many letters of a slice's name as its picture is wide.
LINE_LETTERS = 45
# The brightest thousandth of errors may saturate: one stray pixel would leave the rest of the map black.
ERROR_PERCENTILE = 99.9


def error_scale(pictures: Sequence[Picture]) -> float:
    """The error that is shown brightest, as a share of each slice's ground-truth maximum: one for all rows."""
    shares = [np.percentile(_relative_error(picture), ERROR_PERCENTILE) for picture in pictures]
    largest = float(max(shares))
    return largest if largest > 0 else 1.0


def _relative_error(picture: Picture) -> np.ndarray:
    top = max(float(picture.target.max()), np.finfo(np.float32).tiny)
    return np.abs(picture.reconstruction - picture.target) / top


def in_two_lines(name: str) -> str:
    """A name that is wider than its picture, broken behind the comma that leaves the longer line shortest."""
    places = [place + 1 for place, letter in enumerate(name) if letter == ","]
    if len(name) <= LINE_LETTERS or not places:
        return name
    place = min(places, key=lambda place: max(place, len(name) - place))
    return f"{name[:place]}\n{name[place:].strip()}"


def _drawable(text: str) -> str:
    """A file's name may not be text, and fonts know no lone surrogates; nor are dollar signs in it a formula."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("$", r"\$")


def _as_shown(picture: Picture, axes: Axes | None) -> Picture:
    """Upright, and cut to the object."""
    box = object_box(upright(picture.target, axes))

    def shown(image: np.ndarray) -> np.ndarray:
        return upright(image, axes)[box]

    return replace(
        picture,
        target=shown(picture.target),
        zero_filled=shown(picture.zero_filled),
        reconstruction=shown(picture.reconstruction),
        deviation=None if picture.deviation is None else shown(picture.deviation),
    )


def write_picture_grid(
    pictures: Sequence[Picture], file: Path, title: str, directions: Mapping[str, Axes] | None = None
) -> dict[str, object]:
    """Draws one row a slice and writes the PNG; returns what it shows, for the summary.

    Images are grey from 0 to the slice's ground-truth maximum. Error maps share one colour scale, whose bar
    states it; so do the maps of the samples' deviation, a fifth column where slices have several samples.
    directions: by volume's name, those of its slices' axes where the file says them: they are shown upright.
    Each row is cut to its object.

    Raises DataError without matplotlib, OSError for a file that cannot be written.
    """
    require("matplotlib", "the picture grid")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    largest = error_scale(pictures)
    pictures = [_as_shown(one, axes_of_slice(one.name, directions or {})) for one in pictures]
    heights = [picture.target.shape[0] / picture.target.shape[1] for picture in pictures]
    with_deviation = any(picture.deviation is not None for picture in pictures)
    columns = (*COLUMNS, DEVIATION_COLUMN) if with_deviation else COLUMNS
    size = (len(columns) * ROW_INCHES + 0.9, sum(heights) * ROW_INCHES + 0.32 * len(pictures) + TITLE_INCHES)
    # No pyplot: it would look for a display, and keep every figure.
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_drawable(title), fontsize=10)
    axes = figure.subplots(
        len(pictures), len(columns), squeeze=False, gridspec_kw={"height_ratios": heights, "wspace": 0.02}
    )
    # More steps than eyes or the bar's pixels tell apart.
    colours = matplotlib.colormaps["inferno"].resampled(COLOUR_STEPS)
    drawn = None
    for number, (row, picture) in enumerate(zip(axes, pictures, strict=True)):
        top = float(picture.target.max()) or 1.0
        for axis, image in zip(
            row, (picture.target, picture.zero_filled, picture.reconstruction), strict=False
        ):
            axis.imshow(image, cmap="gray", vmin=0, vmax=top)
        if picture.deviation is not None:
            row[4].imshow(picture.deviation / top, cmap=colours, vmin=0, vmax=largest)
        drawn = row[3].imshow(_relative_error(picture), cmap=colours, vmin=0, vmax=largest)
        for column, axis in enumerate(row):
            axis.set_xticks([])
            axis.set_yticks([])
            if number == 0:
                axis.set_title(columns[column], fontsize=9)
        row[0].set_xlabel(in_two_lines(_drawable(picture.name)), fontsize=7, wrap=True)
        for axis, metrics in (
            (row[1], picture.measured.zero_filled),
            (row[2], picture.measured.reconstruction),
        ):
            axis.set_xlabel(f"{metrics['psnr_db']:.2f} dB, SSIM {metrics['ssim']:.3f}", fontsize=8)
    assert drawn is not None
    bar = figure.colorbar(drawn, ax=axes[:, -1], shrink=0.8, pad=0.03)
    bar.set_label("|error| / maximum of the ground truth", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    assert bar.solids is not None
    bar.solids.set_edgecolor("face")  # no seams between its steps
    with replacing(file) as temporary:
        figure.savefig(temporary, format="png")
    return {
        "slices": [picture.name for picture in pictures],
        "grey_scale": "0 to the maximum of the slice's ground truth",
        "error_scale": f"0 to {largest:.3g} of the maximum of the slice's ground truth, in every row",
        "shown": "upright where the file says its directions, cut to the object",
        "figures_below": "PSNR and SSIM of the slice, its own maximum as the range",
    }
