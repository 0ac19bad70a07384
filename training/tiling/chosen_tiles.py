"""Which tiles a network's images are cut into, once it is known how far the network looks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from swinmr_profiling.training.tiling.support import Support
from swinmr_profiling.training.tiling.tile_grid import Reach, TileError, TilePlan, halves, smooth_overlap


@dataclass(frozen=True)
class ChosenTiles:
    """changes_result: whether pixels differ from the whole image's; reason: why and where, or why they do not."""

    plan: TilePlan
    changes_result: bool
    reason: str


def checked_side(side: int, period: int) -> int:
    """The side of a tile as it was asked for. Raises TileError where it is no multiple of the period."""
    if side % period:
        below, above = side // period * period, -(-side // period) * period
        choices = f"{below} or {above}" if below else f"{above}"
        raise TileError(
            f"a tile of {side} pixels is no multiple of the network's {period}: {choices} would be"
        )
    return side


def choose_tiles(
    support: Support,
    tile_hw: tuple[int, int],
    overlap: int | None = None,
    image_sizes: Collection[tuple[int, int]] = (),
) -> ChosenTiles:
    """Tiles that are the whole image where they can be, else such as are averaged, with the reason.

    image_sizes: (H, W) of the images that are cut.
    overlap: pixels that two tiles share; None: what is needed, or an eighth of a tile where nothing is enough.
    Raises TileError: for a network that takes no image of another size, a tile that is no multiple of the period, and
    overlaps that leave nothing of a tile.
    """
    if support.kind == "unknown":
        raise TileError(f"the network cannot be given tiles: {support.reason}")
    for side in tile_hw:
        checked_side(side, support.period)
    if support.rows is None or support.columns is None:
        where = "most of all near their edges" if support.kind == "wide" else "everywhere"
        reason = f"{support.reason}; tiles differ from the whole image {where}"
        return _smooth(support, tile_hw, overlap, reason)
    for image_hw in sorted(image_sizes):
        odd = support.odd_side(image_hw)
        if odd:
            return _smooth(support, tile_hw, overlap, f"{odd}; tiles differ from the whole image everywhere")
    needed = max(support.rows.both, support.columns.both)
    # Tiles begin at multiples of the period.
    if overlap is not None and overlap < needed:
        reason = (
            f"an overlap of {overlap} pixels is less than the {needed} that tiles need to be the whole image"
        )
        return _smooth(support, tile_hw, overlap, f"{reason}; they differ near their edges")
    rows, columns = support.rows, support.columns
    if overlap is not None:
        rows, columns = _widened(rows, overlap), _widened(columns, overlap)
    plan = TilePlan(tile_hw, support.period, rows, columns, "crop")
    try:
        plan.check()
    except TileError:
        if overlap is not None:
            raise
        reason = (
            f"pixels outside a tile change {needed // 2} pixels and more at its edges: tiles of at least "
            f"{support.least_tile} pixels would be the whole image, smaller ones differ from it"
        )
        return _smooth(support, tile_hw, overlap, reason)
    return ChosenTiles(plan, False, f"tiles overlap by what the network looks beyond them ({needed} pixels)")


def _widened(reach: Reach, overlap: int) -> Reach:
    more = overlap - reach.both
    return Reach(reach.before + more // 2, reach.after + more - more // 2)


def _smooth(support: Support, tile_hw: tuple[int, int], overlap: int | None, reason: str) -> ChosenTiles:
    rows, columns = (
        halves(smooth_overlap(side, support.period) if overlap is None else overlap) for side in tile_hw
    )
    plan = TilePlan(tile_hw, support.period, rows, columns, "smooth")
    plan.check()
    return ChosenTiles(plan, True, reason)
