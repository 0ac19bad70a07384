"""The charts of a report, drawn by matplotlib without a display. They draw what the view holds.

Every chart has a title, words for those who do not see it, and the table it is drawn from.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swinmr_profiling.profiler.reports.charts.chart_texts import (
    latency_table,
    latency_words,
    memory_table,
    memory_words,
    throughput_table,
    throughput_words,
)
from swinmr_profiling.profiler.reports.charts.palette import LIGHT, NEUTRAL, SERIES, Palette
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.memory_view import NOT_TENSORS, MemoryBar, MemoryLine, parts_of
from swinmr_profiling.profiler.reports.views.size_view import SizeView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from swinmr_profiling.profiler.reports.views.view import ProfileView

WIDTH_INCHES = 6.4
MAX_ROWS = 16
# Thinner parts cannot be seen in a bar: the table has them, the legend does not.
VISIBLE_SHARE = 0.004
NAME_LENGTH = 26
# All that `charts_of` may draw: what can be written is known before there are figures.
CHART_NAMES = ("latency", "throughput", "memory_inference", "memory_training")
PARAMETERS: Any = {  # matplotlib's own type names every key there is
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.5,
    # Text stays text: selectable, small, and in the page's own font.
    "svg.fonttype": "none",
    "svg.hashsalt": "profile",
    # A dollar sign in a GPU's or config's name is not a formula.
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Chart:
    """A chart that can be drawn in any palette, and all of it in words and figures.

    Attributes:
        name: for file names and identifiers.
        source: of its figures: "measured", "predicted", ...
        table: first row is the header.
    """

    name: str
    title: str
    source: str
    words: str
    table: tuple[tuple[str, ...], ...]
    draw: Callable[[Palette], Figure]

    def svg(self, palette: Palette) -> str:
        """SVG text. Raises whatever matplotlib does."""
        buffer = io.StringIO()
        self._save(palette, buffer, "svg")
        return buffer.getvalue()

    def write(self, file: Path, kind: str) -> None:
        """Writes "svg" or "png" on white. Raises OSError."""
        self._save(LIGHT, file, kind)

    def _save(self, palette: Palette, target: io.StringIO | Path, kind: str) -> None:
        import matplotlib

        metadata = {"Date": None, "Title": self.title} if kind == "svg" else {"Title": self.title}
        with matplotlib.rc_context(PARAMETERS):
            self.draw(palette).savefig(target, format=kind, dpi=160, metadata=metadata)


def charts_of(view: ProfileView) -> list[Chart]:
    """The charts for which the profile has figures."""
    found = []
    timed = [size for size in view.ran if size.samples_ms]
    if timed:
        found.append(_latency_chart(timed))
    throughput = [size for size in view.ran if size.images_per_second is not None]
    if throughput:
        found.append(_throughput_chart(view, throughput))
    inference, training = view.inference_memory, view.training_memory
    if inference is not None:
        name, title = "memory_inference", "Memory of inference"
        found.append(_memory_chart(name, title, inference.kind, inference.bars, inference.lines))
    if training is not None and training.bars:
        name, title = "memory_training", "Memory of training"
        marks = (training.recommended, training.measured)
        found.append(_memory_chart(name, title, training.setting, training.bars, training.lines, *marks))
    return found


def _new_figure(palette: Palette, height_inches: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # No pyplot: it would look for a display, and keep every figure.
    figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained", facecolor=palette.paper)
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, 1, squeeze=False)[:, 0])
    for axis in axes:
        axis.set_facecolor(palette.paper)
        axis.tick_params(colors=palette.muted, labelcolor=palette.ink, labelsize=9)
        for spine in axis.spines.values():
            spine.set_color(palette.muted)
        axis.grid(True, color=palette.grid, linewidth=0.6)
        axis.set_axisbelow(True)
    return figure, axes


def _latency_chart(sizes: Sequence[SizeView]) -> Chart:
    shown = sizes[:MAX_ROWS]

    def draw(palette: Palette) -> Figure:
        figure, axes = _new_figure(palette, 0.55 + 0.72 * len(shown), len(shown))
        for axis, size in zip(axes, shown, strict=True):
            _draw_samples(axis, size, palette)
        axes[-1].set_xlabel("ms per forward pass of the whole batch", color=palette.ink)
        return figure

    return Chart(
        "latency", "Latency of each batch size", "measured", latency_words(sizes), latency_table(sizes), draw
    )


def _draw_samples(axis: Axes, size: SizeView, palette: Palette) -> None:
    """Every run as a dot, spread over the height in the order they ran; the median and its interval on top."""
    samples = size.samples_ms or ()
    heights = [0.15 + 0.7 * number / max(len(samples) - 1, 1) for number in range(len(samples))]
    if size.ci95_median_ms is not None:
        axis.axvspan(*size.ci95_median_ms, color=SERIES[4], alpha=0.35, linewidth=0)
    axis.plot(samples, heights, "o", markersize=3, color=SERIES[0], alpha=0.65, markeredgewidth=0)
    if size.median_ms is not None:
        axis.axvline(size.median_ms, color=palette.accent, linewidth=1.6)
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(False)
    axis.set_ylabel(f"batch {size.batch_size}", rotation=0, ha="right", va="center", color=palette.ink)
    axis.ticklabel_format(useOffset=False, style="plain", axis="x")
    axis.locator_params(axis="x", nbins=6)


def _throughput_chart(view: ProfileView, sizes: Sequence[SizeView]) -> Chart:
    knee = None if view.advice is None else view.size(view.advice.batch_size)
    failed = [size for size in view.sizes if not size.ran]

    def draw(palette: Palette) -> Figure:
        figure, (axis,) = _new_figure(palette, 3.2)
        axis.set_xscale("log", base=2)
        batches = [size.batch_size for size in sizes]
        rates = [size.images_per_second or 0.0 for size in sizes]
        axis.plot(batches, rates, "o-", color=SERIES[0], linewidth=1.8)
        if knee is not None and knee.images_per_second is not None:
            axis.axvline(knee.batch_size, color=palette.accent, linewidth=1.2, linestyle="--")
            axis.plot([knee.batch_size], [knee.images_per_second], "o", markersize=10, color=palette.accent)
            axis.annotate(
                f"knee: batch {knee.batch_size}",
                (knee.batch_size, knee.images_per_second),
                xytext=(8, -16),
                textcoords="offset points",
                color=palette.accent,
            )
        for size in failed:
            axis.plot([size.batch_size], [0], "x", color=palette.muted, markersize=8, clip_on=False)
            axis.annotate(
                words.shortened(size.error or "no timing", 12),
                (size.batch_size, 0),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                color=palette.muted,
            )
        _batch_axis(axis, [*batches, *(size.batch_size for size in failed)], palette)
        axis.set_ylim(bottom=0)
        axis.margins(y=0.15)
        axis.set_ylabel("images per second", color=palette.ink)
        return figure

    return Chart(
        "throughput",
        "Throughput by batch size",
        "measured",
        throughput_words(view, sizes),
        throughput_table(view.sizes),
        draw,
    )


def _batch_axis(axis: Axes, batches: Sequence[int], palette: Palette) -> None:
    shown = sorted(set(batches))
    while len(shown) > 14:
        shown = shown[::2]
    axis.set_xticks(shown, [f"{batch:,}" for batch in shown])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("batch size", color=palette.ink)


def _memory_chart(
    name: str,
    title: str,
    what: str,
    bars: Sequence[MemoryBar],
    lines: Sequence[MemoryLine],
    recommended: Sequence[tuple[str, int]] = (),
    measured: Sequence[tuple[int, int]] = (),
) -> Chart:
    sources = sorted({bar.source for bar in bars})

    def draw(palette: Palette) -> Figure:
        parts = parts_of(bars)
        figure, (axis,) = _new_figure(palette, 3.2 + 0.1 * (len(parts) + len(lines) + len(recommended)))
        largest = max([bar.total_bytes for bar in bars] + [line.total_bytes for line in lines])
        unit, unit_name = (words.GIB, "GiB") if largest >= 2 * words.GIB else (words.MIB, "MiB")
        places = {bar.batch_size: place for place, bar in enumerate(bars)}
        _draw_bars(axis, bars, parts, unit, palette)
        _draw_lines(axis, lines, unit, palette)
        points = [(places[batch], size / unit) for batch, size in measured if batch in places]
        if points:
            axis.plot(*zip(*points, strict=True), "D", color=palette.ink, markersize=5, label="measured")
        for gpu, batch in recommended:
            if batch in places:
                height = bars[places[batch]].total_bytes / unit
                label = f"recommended for {words.shortened(gpu, 24)}: {batch}"
                axis.bar(
                    places[batch],
                    height,
                    width=0.86,
                    fill=False,
                    edgecolor=palette.accent,
                    linewidth=1.8,
                    label=label,
                )
        axis.set_xticks(range(len(bars)), [f"{bar.batch_size:,}" for bar in bars])
        axis.grid(False, axis="x")
        axis.set_xlabel("batch size", color=palette.ink)
        axis.set_ylabel(unit_name, color=palette.ink)
        axis.margins(y=0.08)
        figure.legend(loc="outside lower left", fontsize=8.5, frameon=False, labelcolor=palette.ink, ncols=2)
        return figure

    return Chart(
        name,
        title,
        " and ".join(sources),
        memory_words(what, bars, lines, recommended),
        memory_table(bars, measured),
        draw,
    )


def _draw_bars(
    axis: Axes, bars: Sequence[MemoryBar], parts: Sequence[str], unit: int, palette: Palette
) -> None:
    tensors = [part for part in parts if part not in NOT_TENSORS]
    colours = {part: SERIES[number % len(SERIES)] for number, part in enumerate(tensors)}
    # What is not a tensor of the step is grey: the allocator, the libraries, the context.
    colours.update(zip((part for part in parts if part in NOT_TENSORS), NEUTRAL, strict=False))
    largest = max(bar.total_bytes for bar in bars)
    tops = [0.0] * len(bars)
    for part in parts:
        heights = [dict(bar.parts).get(part, 0) / unit for bar in bars]
        seen = max(heights) * unit > VISIBLE_SHARE * largest
        label = part.replace("_", " ") if seen else "_"  # what starts with an underscore is in no legend
        axis.bar(
            range(len(bars)),
            heights,
            width=0.72,
            bottom=tops,
            color=colours[part],
            label=label,
            edgecolor=palette.paper,
            linewidth=0.4,
        )
        tops = [top + height for top, height in zip(tops, heights, strict=True)]


def _draw_lines(axis: Axes, lines: Sequence[MemoryLine], unit: int, palette: Palette) -> None:
    for number, line in enumerate(lines):
        label = f"{words.shortened(line.name, NAME_LENGTH)}: {line.total_bytes / words.GIB:,.1f} GiB"
        style = ("-", "--", "-.", ":")[number % 4]
        axis.axhline(line.total_bytes / unit, linestyle=style, color=palette.ink, linewidth=1.3, label=label)
