"""Evaluation in tiles: which tiles a test set's images are cut into, and what the summary says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.training.evaluation.evaluation import ReconstructionError, reconstruct
from swinmr_profiling.training.tiling.support import Support, find_support
from swinmr_profiling.training.tiling.tile_grid import TileError, rounded_up
from swinmr_profiling.training.tiling.tiled_network import TiledNetwork, checked_side, choose_tiles

ON_A_CPU = (
    "whole images: --tile auto fits tiles to a GPU's memory, and this is a CPU; --tile N cuts on any device"
)
WHOLE_IMAGES = ("whole", "position")
# Of the largest value, by bits of the activations: what the order of sums and other kernels may change.
ROUNDING = {32: 1e-3, 16: 5e-2}


class WhatFits(Protocol):
    """A card, as far as tiles go (profiler/largest_tile/card_sizes.py). name: of the card."""

    name: str

    def whole_fits(self, image_hw: tuple[int, int]) -> bool:
        """Whether a batch of whole images fits."""

    def largest_side(self, period: int, image_hw: tuple[int, int]) -> int | None:
        """Of a square tile, beside a batch of the images."""


@dataclass(frozen=True)
class TileRequest:
    """What `--tile` asks for.

    side: pixels of a square tile; None for "auto". overlap: of two tiles; None for what is needed. card: what fits;
    None on a CPU, and where a side is named.
    """

    side: int | None
    overlap: int | None = None
    card: WhatFits | None = None


@dataclass(frozen=True)
class Tiling:
    """The network that is evaluated, and the `tiling` block of the summary."""

    network: nn.Module
    block: dict[str, Any]

    @property
    def changes_result(self) -> bool:
        return bool(self.block["changes_result"])


def tile_evaluation(built: BuiltModel, sizes: Iterable[tuple[int, int]], request: TileRequest) -> Tiling:
    """Puts tiles before the network, which has its weights, where images are larger than they may be.

    sizes: (H, W) of the images.
    Raises ReconstructionError: for a network that takes no tiles, for tiles that cannot be, and with "auto" for a
    network whose every pixel depends on the whole image.
    """
    images = sorted(set(sizes))
    try:
        if request.side is None:
            return _fitted(built, images, request)
        if all(max(size) <= request.side for size in images):
            reason = f"whole images: none is larger than {request.side} pixels"
            return Tiling(built.module, _whole_block(request, reason))
        larger = [size for size in images if max(size) > request.side]
        return _cut(built, find_support(built), request.side, request, frozenset(), larger)
    except TileError as error:
        raise ReconstructionError(f"--tile {_asked(request)}: {error}") from None


def _fitted(built: BuiltModel, images: list[tuple[int, int]], request: TileRequest) -> Tiling:
    card = request.card
    if card is None:
        return Tiling(built.module, _whole_block(request, ON_A_CPU))
    fits = frozenset(size for size in images if card.whole_fits(size))
    if fits == set(images):
        return Tiling(built.module, _whole_block(request, f"whole images fit {card.name}"))
    support = find_support(built)
    cut = [size for size in images if size not in fits]
    odd = next(filter(None, map(support.odd_side, cut)), "")
    if support.kind in WHOLE_IMAGES or odd:
        raise TileError(
            f"whole images do not fit {card.name}, and of tiles the network would make another image: "
            f"{support.reason or odd}; --tile N cuts all the same, and says so in the summary"
        )
    largest = max(images, key=lambda size: size[0] * size[1])
    side = card.largest_side(support.period, largest)
    if side is None:
        raise TileError(f"no tile fits {card.name}: use a smaller val_batch_size, or bf16")
    # No larger than the images that are cut: else there is nothing to cut.
    side = min(side, max(rounded_up(max(size), support.period) for size in cut))
    return _cut(built, support, side, request, fits, cut)


def _cut(
    built: BuiltModel,
    support: Support,
    side: int,
    request: TileRequest,
    whole_sizes: frozenset[tuple[int, int]],
    cut: Sequence[tuple[int, int]],
) -> Tiling:
    if support.kind != "unknown":
        checked_side(side, support.period)
    chosen = choose_tiles(support, (side, side), request.overlap, cut)
    plan = chosen.plan
    block = {
        "asked": _asked(request),
        "applied": True,
        "tile": list(plan.tile_hw),
        "overlap": [plan.rows.both, plan.columns.both],
        "multiple_of": plan.multiple,
        "blend": plan.blend,
        "whole_sizes": [list(size) for size in sorted(whole_sizes)],
        "changes_result": chosen.changes_result,
        "reason": chosen.reason,
        "difference": None,
    }
    return Tiling(TiledNetwork(built.module, plan, whole_sizes), block)


def _asked(request: TileRequest) -> str | int:
    return "auto" if request.side is None else request.side


def _whole_block(request: TileRequest, reason: str) -> dict[str, Any]:
    return {
        "asked": _asked(request),
        "applied": False,
        "tile": None,
        "overlap": None,
        "multiple_of": None,
        "blend": None,
        "whole_sizes": None,
        "changes_result": False,
        "reason": reason,
        "difference": None,
    }


def first_cut_slice(tiling: Tiling, volumes: Iterable[Any]) -> int | None:
    """Number of the first slice that goes in tiles; None where none does. volumes: of the data set, in order."""
    first = 0
    for volume in volumes:
        if isinstance(tiling.network, TiledNetwork) and tiling.network.is_cut(volume.image_hw):
            return first
        first += volume.slices
    return None


def measure_difference(
    tiling: Tiling,
    network: nn.Module,
    sample: Mapping[str, Any],
    device: torch.device,
    autocast_dtype: torch.dtype | None,
) -> None:
    """Fills `difference` of the block: one slice in tiles and whole. What should be equal is marked where it is not.

    network: the one without tiles. sample: a collated batch of one. The whole image may be what does not fit. Strips
    are small: what a network does from some size on, or where it compares pixels, is first seen here.
    """
    image = sample["input"].to(device)
    block: dict[str, Any] = {
        "slice": sample["name"][0],
        "unit": "share of the largest value of the whole image's result",
        "largest": None,
        "root_mean_square": None,
        "reason": None,
    }
    tiling.block["difference"] = block
    try:
        whole = reconstruct(network, image, autocast_dtype).double().cpu()
    except (torch.cuda.OutOfMemoryError, MemoryError):
        block["reason"] = "the whole image does not fit"
        return
    gap = (reconstruct(tiling.network, image, autocast_dtype).double().cpu() - whole).abs()
    top = float(whole.abs().max())
    if not top > 0:
        block["reason"] = "the whole image's result is zero"
        return
    largest = float(gap.max()) / top
    block |= {"largest": largest, "root_mean_square": float(gap.square().mean().sqrt()) / top}
    allowed = ROUNDING[32 if autocast_dtype is None else 8 * autocast_dtype.itemsize]
    if not tiling.changes_result and not largest <= allowed:
        tiling.block["changes_result"] = True
        tiling.block["reason"] = (
            f"{block['slice']} in tiles is not the whole image, though on small images the network looks no "
            "farther than tiles overlap: it does something else with large ones, or compares pixels of all the image"
        )


def tiling_lines(block: dict[str, Any]) -> list[str]:
    """What `test.py` prints of it."""
    if not block["applied"]:
        return [f"--tile {block['asked']}: {block['reason']}"]
    down, across = block["tile"]
    joined = "joined exactly" if block["blend"] == "crop" else "averaged where they overlap"
    first = f"tiles of {down} x {across}, {joined}, overlap at least {block['overlap'][0]} x {block['overlap'][1]}"
    result = "tiling changes the result" if block["changes_result"] else "equal to whole images"
    lines = [f"{first}: {result}; {block['reason']}"]
    difference = block["difference"]
    if difference is not None and difference["largest"] is not None:
        lines.append(
            f"  {difference['slice']} in tiles and whole: largest difference {difference['largest']:.1e}, root mean "
            f"square {difference['root_mean_square']:.1e} of its largest value"
        )
    elif difference is not None:
        lines.append(f"  how much it changes was not measured: {difference['reason']}")
    return lines
