"""A network that takes images of any size in tiles, one after the other, and joins what it makes of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.tiling.tile_grid import Span, TileError, TilePlan


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
