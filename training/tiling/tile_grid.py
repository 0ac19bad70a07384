"""How an image is cut into tiles: where each begins and ends, and what of it is taken.

All figures are pixels of the input. Every tile begins at a multiple of the network's period (its window, its factor of
downsampling), so that windows lie in a tile as they lie in the whole image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What is added to a tile on both sides together where a network looks farther than tiles can overlap.
SMOOTH_OVERLAP_SHARE = (1, 8)
Blend = Literal["crop", "smooth"]


class TileError(ValueError):
    """A tile or an overlap that no image can be cut with; one line for the user."""


@dataclass(frozen=True)
class Span:
    """One tile along one axis: it is image[start:end], and of its result [kept_start:kept_end] is taken (in "crop")."""

    start: int
    end: int
    kept_start: int
    kept_end: int


@dataclass(frozen=True)
class Reach:
    """How far pixels outside a tile change its result: `before` pixels at its beginning, `after` at its end."""

    before: int
    after: int

    @property
    def both(self) -> int:
        """What two neighbouring tiles must overlap at least."""
        return self.before + self.after


def rounded_up(length: int, multiple: int) -> int:
    """The next multiple that is not smaller."""
    return -(-length // multiple) * multiple


def stride(tile: int, multiple: int, reach: Reach) -> int:
    """From one tile's beginning to the next one's. Raises TileError where the overlaps leave nothing of a tile."""
    step = (tile - reach.both) // multiple * multiple
    if step < 1:
        raise TileError(
            f"a tile of {tile} pixels is smaller than its overlaps of {reach.before} and {reach.after}: at least "
            f"{rounded_up(reach.both, multiple) + multiple} pixels are needed"
        )
    return step


def spans(length: int, tile: int, multiple: int, reach: Reach) -> list[Span]:
    """Tiles along an axis, in order; the last is shifted inward, and ends with the image.

    tile: a multiple of `multiple`. Of an image that is no multiple the last tile is as many pixels smaller.
    """
    if length <= tile:
        return [Span(0, length, 0, length)]
    step = stride(tile, multiple, reach)
    last = rounded_up(length - tile, multiple)
    starts = [*range(0, last, step), last]
    ends = [min(start + tile, length) for start in starts]
    # Between two tiles the border lies in the middle of what both may give.
    borders = [
        min(max((start + end) // 2, start + reach.before), end - reach.after)
        for start, end in zip(starts[1:], ends, strict=False)
    ]
    return [
        Span(start, end, kept_start, kept_end)
        for start, end, kept_start, kept_end in zip(
            starts, ends, [0, *borders], [*borders, length], strict=True
        )
    ]


@dataclass(frozen=True)
class TilePlan:
    """Tiles of (height, width), at multiples of `multiple`.

    rows, columns: the overlap along each axis. blend: "crop" takes each pixel from the one tile in which it is not
    touched by an edge; "smooth" averages tiles with weights that fall to their edges.
    """

    tile_hw: tuple[int, int]
    multiple: int
    rows: Reach
    columns: Reach
    blend: Blend

    def grid(self, image_hw: tuple[int, int]) -> tuple[list[Span], list[Span]]:
        """Tiles down and across. Raises TileError."""
        return (
            spans(image_hw[0], self.tile_hw[0], self.multiple, self.rows),
            spans(image_hw[1], self.tile_hw[1], self.multiple, self.columns),
        )

    def check(self) -> None:
        """Raises TileError where such tiles would cover no image."""
        stride(self.tile_hw[0], self.multiple, self.rows)
        stride(self.tile_hw[1], self.multiple, self.columns)


def smooth_overlap(tile: int, multiple: int) -> int:
    """Pixels that tiles share by default where they are averaged: an eighth of the tile, at least a window."""
    share, of = SMOOTH_OVERLAP_SHARE
    wanted = rounded_up(max(tile * share // of, multiple), multiple)
    return min(wanted, (tile - multiple) // multiple * multiple)


def halves(overlap: int) -> Reach:
    """An overlap, as what each of two tiles gives of it."""
    return Reach(overlap // 2, overlap - overlap // 2)
