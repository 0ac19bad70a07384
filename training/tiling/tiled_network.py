"""Which tiles images are cut into, once it is known how far a network looks, and the network that takes them so.

It takes them one after the other, of images of any size, and joins what it makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.tiling.support import Support
from swinmr_profiling.training.tiling.tile_grid import (
    Reach,
    Span,
    TileError,
    TilePlan,
    halves,
    smooth_overlap,
)


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


class TiledNetwork(nn.Module):
    """Image (B, C, H, W) to image (B, C', scale H, scale W); images that are no larger than a tile go in whole.

    What is made of tiles is joined on the host: enlarged, it may be more than the card holds.
    whole_sizes: (H, W) of images that are not cut though a tile is smaller.
    """

    def __init__(
        self, network: nn.Module, plan: TilePlan, whole_sizes: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        """Raises TileError for a plan that covers no image."""
        super().__init__()
        plan.check()
        self.network, self.plan, self.whole_sizes = network, plan, whole_sizes

    def is_cut(self, image_hw: tuple[int, int]) -> bool:
        """Whether an image of this size is taken in tiles."""
        tile = self.plan.tile_hw
        return image_hw not in self.whole_sizes and (image_hw[0] > tile[0] or image_hw[1] > tile[1])

    def forward(self, image: Tensor) -> Tensor:
        """Results in half precision are joined in float32. Raises TileError for a network that makes no image."""
        height, width = image.shape[-2:]
        if not self.is_cut((height, width)):
            return self.network(image)  # type: ignore[no-any-return]
        rows, columns = self.plan.grid((height, width))
        joined: _Joined | None = None
        for row in rows:
            for column in columns:
                tile = image[..., row.start : row.end, column.start : column.end].contiguous()
                made = first_tensor(self.network(tile))
                if joined is None:
                    joined = _Joined(made, tile, (height, width))
                joined.add(made, tile, (row, rows), (column, columns), self.plan)
        assert joined is not None
        return joined.result()


class _Joined:
    """The whole result, as far as tiles have come."""

    def __init__(self, made: Tensor, tile: Tensor, image_hw: tuple[int, int]) -> None:
        scale, rest = divmod(made.shape[-1], tile.shape[-1]) if made.ndim == 4 else (0, 0)
        if scale < 1 or rest:
            raise TileError(f"the network makes {tuple(made.shape)} of a tile {tuple(tile.shape)}: no image")
        self.scale = scale
        shape = (*made.shape[:2], scale * image_hw[0], scale * image_hw[1])
        dtype = torch.promote_types(made.dtype, torch.float32)
        self.sum = torch.zeros(shape, dtype=dtype)
        self.weights = torch.zeros(shape[-2:], dtype=dtype)

    def add(
        self,
        made: Tensor,
        tile: Tensor,
        row: tuple[Span, list[Span]],
        column: tuple[Span, list[Span]],
        plan: TilePlan,
    ) -> None:
        scale = self.scale
        expected = (scale * tile.shape[-2], scale * tile.shape[-1])
        if tuple(made.shape[-2:]) != expected:
            raise TileError(f"the network makes {tuple(made.shape)} of a tile {tuple(tile.shape)}: no image")
        made = made.detach().to("cpu", self.sum.dtype)
        (down, all_down), (across, all_across) = row, column
        if plan.blend == "crop":
            ys, xs = (slice(span.kept_start * scale, span.kept_end * scale) for span in (down, across))
            own_ys, own_xs = (
                slice((span.kept_start - span.start) * scale, (span.kept_end - span.start) * scale)
                for span in (down, across)
            )
            self.sum[..., ys, xs] = made[..., own_ys, own_xs]
            self.weights[ys, xs] = 1
            return
        ys, xs = (slice(span.start * scale, span.end * scale) for span in (down, across))
        like = self.weights
        weight = edge_weights(down, all_down, scale).to(like)[:, None] * edge_weights(
            across, all_across, scale
        ).to(like)
        self.sum[..., ys, xs] += made * weight
        self.weights[ys, xs] += weight

    def result(self) -> Tensor:
        return self.sum.div_(self.weights)


def edge_weights(span: Span, spans: list[Span], scale: int) -> Tensor:
    """Weights (scale x length,) of one tile along an axis, float64: sin^2 over what it shares with its neighbours.

    1 at the image's edges and between the overlaps; those of two tiles add up to 1. Always above 0.
    """
    number = spans.index(span)
    weights = torch.ones((span.end - span.start) * scale, dtype=torch.float64)
    if number:
        shared = (spans[number - 1].end - span.start) * scale
        weights[:shared] *= _rise(shared)
    if number + 1 < len(spans):
        shared = (span.end - spans[number + 1].start) * scale
        if shared:
            weights[-shared:] *= _rise(shared).flip(0)
    return weights


def _rise(length: int) -> Tensor:
    places = (torch.arange(length, dtype=torch.float64) + 0.5) / max(length, 1)
    return torch.sin(places * math.pi / 2) ** 2
