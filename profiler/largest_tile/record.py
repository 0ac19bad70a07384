"""What fit_inference.py answers, as its JSON holds it. `InferenceFit.model_json_schema()` is its schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.profiler.record.blocks.figures import Block, Bytes, Count, PositiveCount, Precision
from swinmr_profiling.profiler.record.blocks.recommended import BudgetBlock

Layout = Literal["contiguous", "channels_last"]
Side = Annotated[list[PositiveCount], Field(min_length=2, max_length=2)]
Overlap = Annotated[list[Count], Field(min_length=2, max_length=2)]


class SizeFigures(Block):
    """One size, traced and replayed.

    Attributes:
        size: [height, width] in pixels of the input.
        live_bytes, reserved_bytes: at the peak; the latter with the libraries' workspaces.
        needed_bytes: of the card: reserved by the allocator, workspaces and context.
        needed_interval_bytes: [low, high], how far a GPU may lie from that.
        fits: needed_bytes within what the headroom leaves, and the interval's upper end within what others leave.
    """

    size: Side
    live_bytes: Bytes
    reserved_bytes: Bytes
    needed_bytes: Bytes
    needed_interval_bytes: list[Bytes] = Field(min_length=2, max_length=2)
    fits: bool


class ImageTiles(Block):
    """How an image goes through the network on the card.

    Attributes:
        whole: in one piece; then `tile` is the image.
        tile: [height, width]; grid: tiles [down, across]; overlap: pixels of two neighbours, along each axis.
        blend: "crop" where every pixel is that of the whole image, "smooth" where tiles are averaged.
        changes_result: whether pixels differ from those of the whole image, and where.
        peak: what a tile, or the whole image, needs.
    """

    whole: bool
    tile: Side
    grid: Side
    tiles: PositiveCount
    overlap: Overlap
    blend: Literal["crop", "smooth"] | None
    changes_result: bool
    reason: str
    peak: SizeFigures


class FittedSetting(Block):
    """One precision and memory format.

    Attributes:
        largest: the largest size that fits; None where none does.
        next_larger: one period more, which does not fit; None where the network refuses it (`refused`), or where the
            search ended at its largest size.
        image: the tiles of the image that was asked for; None where none was, or where it cannot be cut (`no_tiles`).
        looked_at: every size that was predicted.
        monotone: whether no size that was looked at needs less than a smaller one.
    """

    precision: Precision
    layout: Layout
    largest: SizeFigures | None
    next_larger: SizeFigures | None
    refused: str | None
    image: ImageTiles | None
    no_tiles: str | None
    looked_at: list[SizeFigures] = Field(min_length=1)
    monotone: bool


class SupportBlock(Block):
    """How far the network looks (training/tiling/support.py). rows, columns: [before, after] in pixels."""

    kind: Literal["finite", "wide", "whole", "position", "unknown"]
    period: PositiveCount
    scale: PositiveCount | None
    rows: Overlap | None
    columns: Overlap | None
    reason: str
    limit: PositiveCount


class InferenceFit(Block):
    """`settings`: one for each precision and memory format, in the order asked for."""

    kind: Literal["inference fit"]
    version: Literal[1]
    source: Literal["predicted"]
    config_file: str | None
    torch_version: str
    batch_size: PositiveCount
    budget: BudgetBlock
    period: PositiveCount
    aspect: Side
    image_size: Side | None
    support: SupportBlock | None
    settings: list[FittedSetting] = Field(min_length=1)
    notes: list[str]
