"""The largest size of each precision and memory format on a card, and the tiles of an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.largest_tile.record import (
    FittedSetting,
    ImageTiles,
    InferenceFit,
    Layout,
    SizeFigures,
    SupportBlock,
)
from swinmr_profiling.profiler.largest_tile.size_prediction import SizePredictor, predictor
from swinmr_profiling.profiler.largest_tile.size_search import Look, SizeSearch
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.failures import first_lines
from swinmr_profiling.training.tiling.support import Support, find_support, structural_period
from swinmr_profiling.training.tiling.tile_grid import Span, TileError, rounded_up
from swinmr_profiling.training.tiling.tiled_network import choose_tiles

# Nothing is searched beyond: orders of pixels that networks of windows keep are made on the host, and so large.
LONGEST_SIDE = 16_384
NOTES = (
    "memory is predicted: the network was traced at each size that is named, nothing ran on a GPU",
    "a size fits where the prediction is within what the headroom leaves, and the upper end of its interval within "
    "all that others leave",
)
DENOISER = "a denoiser is sampled with whole images: nothing is cut"


def size_at(steps: int, period: int, aspect: tuple[int, int]) -> tuple[int, int]:
    """(height, width): the shorter side is steps x period, the longer in proportion, rounded to periods."""
    shorter = steps * period
    height, width = aspect
    longer = max(1, round(steps * max(aspect) / min(aspect))) * period
    return (shorter, longer) if height <= width else (longer, shorter)


class SizesOnCard:
    """Looks for the largest size of one setting. held_bytes: what lies on the card beside."""

    def __init__(
        self, predicted: SizePredictor, period: int, aspect: tuple[int, int] = (1, 1), held_bytes: int = 0
    ) -> None:
        self.predicted, self.period, self.aspect, self.held_bytes = predicted, period, aspect, held_bytes
        self.refusals: dict[int, str] = {}

    def largest(self) -> tuple[int | None, SizeSearch]:
        """Steps of `size_at`, None where nothing fits; and the search. Raises what the network raises at its own size.

        A size that the network refuses is one that does not fit.
        """
        own = self.predicted.built.image_hw
        assert own is not None
        # Its own size must do: what else is wrong is no matter of a size.
        self.predicted.at(own)
        last = max(LONGEST_SIDE * min(self.aspect) // max(self.aspect) // self.period, 1)
        search = SizeSearch(self._look, last)
        return search.largest(max(1, min(own) // self.period)), search

    def figures(self, steps: int) -> SizeFigures | None:
        """None where the network refuses."""
        size = size_at(steps, self.period, self.aspect)
        return None if steps in self.refusals else self.predicted.at(size)

    def _look(self, steps: int) -> Look:
        try:
            found = self.predicted.at(size_at(steps, self.period, self.aspect))
        except Exception as error:  # whatever a network raises at a size that it does not take
            self.refusals[steps] = first_lines(str(error)) or type(error).__name__
            return Look(None)
        excess = self.held_bytes + self.predicted.excess_bytes(found)
        # Of what is reserved beyond what is alive the allocator may need less for a larger image.
        return Look(excess, excess - (found.reserved_bytes - found.live_bytes))


def fit_inference(
    config: ExperimentConfig,
    budget: Budget,
    *,
    config_file: str | None,
    settings: Sequence[tuple[Precision, Layout]],
    batch_size: int = 1,
    image_hw: tuple[int, int] | None = None,
    of_image_aspect: bool = False,
    compute_capability: str | None = None,
    trust_config: bool = False,
    on_event: Callable[[str], None] = lambda text: None,
) -> InferenceFit:
    """Searches each setting. Raises ModelError, ConfigError, ValueError, and whatever the network raises."""
    torch.manual_seed(config.system.seed)
    built = build_model(config, trust_config=trust_config)
    if built.image_hw is None:
        raise ValueError(
            "the network's input is no image of (channels, height, width): no size of it can be searched"
        )
    period = structural_period(built)
    support = None
    if image_hw is not None and not config.is_denoiser:
        support = find_support(built)
        period = support.period
        on_event(f"support: {support.kind}; period {period}; {support.rows}")
    aspect = image_hw if of_image_aspect and image_hw is not None else (1, 1)
    fitted = []
    for precision, layout in settings:
        predicted = predictor(
            config, precision, layout, batch_size, budget,
            compute_capability=compute_capability, trust_config=trust_config,
        )  # fmt: skip
        sizes = SizesOnCard(predicted, period, aspect)
        steps, search = sizes.largest()
        on_event(f"{precision}, {layout}: {len(search.seen)} sizes were looked at")
        image, no_tiles = (None, None) if image_hw is None else _image(sizes, steps, support, image_hw)
        beyond = (steps or 0) + 1
        fitted.append(
            FittedSetting(
                precision=precision,
                layout=layout,
                largest=None if steps is None else sizes.figures(steps),
                next_larger=None if beyond > search.last else sizes.figures(beyond),
                refused=sizes.refusals.get(beyond),
                image=image,
                no_tiles=no_tiles,
                looked_at=sorted(predicted.seen.values(), key=lambda one: one.size),
                monotone=search.is_monotone,
            )
        )
    return InferenceFit(
        kind="inference fit",
        version=1,
        source="predicted",
        config_file=config_file,
        torch_version=torch.__version__,
        batch_size=batch_size,
        budget=budget.as_block(),
        period=period,
        aspect=list(aspect),
        image_size=None if image_hw is None else list(image_hw),
        support=None if support is None else _as_block(support),
        settings=fitted,
        notes=list(NOTES),
    )


def _as_block(support: Support) -> SupportBlock:
    rows, columns = support.rows, support.columns
    return SupportBlock(
        kind=support.kind,
        period=support.period,
        scale=support.scale,
        rows=None if rows is None else [rows.before, rows.after],
        columns=None if columns is None else [columns.before, columns.after],
        reason=support.reason,
        limit=support.limit,
    )


def _image(
    sizes: SizesOnCard, steps: int | None, support: Support | None, image_hw: tuple[int, int]
) -> tuple[ImageTiles | None, str | None]:
    """The image whole, or its tiles; else why there are none."""
    try:
        whole = sizes.predicted.at(image_hw)
    except Exception as error:  # whatever a network raises at a size that it does not take
        refused = first_lines(str(error)) or type(error).__name__
        return None, f"the network refuses an image of {image_hw[0]} x {image_hw[1]}: {refused}"
    if whole.fits:
        return ImageTiles(
            whole=True, tile=list(image_hw), grid=[1, 1], tiles=1, overlap=[0, 0], blend=None,
            changes_result=False, reason="the whole image fits", peak=whole,
        ), None  # fmt: skip
    if support is None:
        return None, DENOISER
    # The image waits on the card while its tiles run; what is made of them goes to the host.
    held = sizes.predicted.input_bytes(image_hw)
    beside = SizesOnCard(sizes.predicted, sizes.period, sizes.aspect, held)
    side, _ = beside.largest() if steps is not None else (None, None)
    if side is None:
        return None, "not even the smallest tile fits beside the image"
    height, width = size_at(side, sizes.period, sizes.aspect)
    tile = (
        min(height, rounded_up(image_hw[0], sizes.period)),
        min(width, rounded_up(image_hw[1], sizes.period)),
    )
    try:
        chosen = choose_tiles(support, tile, image_sizes=[image_hw])
        rows, columns = chosen.plan.grid(image_hw)
    except TileError as error:
        return None, str(error)
    peak = sizes.predicted.at(tile)
    if not peak.fits:
        return None, f"tiles of {tile[0]} x {tile[1]} do not fit, though {height} x {width} would"
    return ImageTiles(
        whole=False,
        tile=list(tile),
        grid=[len(rows), len(columns)],
        tiles=len(rows) * len(columns),
        overlap=[_shared(rows), _shared(columns)],
        blend=chosen.plan.blend,
        changes_result=chosen.changes_result,
        reason=chosen.reason,
        peak=peak,
    ), None


def _shared(spans: list[Span]) -> int:
    """Pixels that the first two tiles share; 0 for one tile."""
    return spans[0].end - spans[1].start if len(spans) > 1 else 0
