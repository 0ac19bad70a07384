"""Memory against batch size: stacked bars to scale, GPUs as lines that carry their names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from swinmr_profiling.profiler.reports.charts.chart_texts import memory_table, memory_words
from swinmr_profiling.profiler.reports.charts.drawing import Chart, batch_axis, new_figure
from swinmr_profiling.profiler.reports.charts.palette import NEUTRAL, SERIES, Palette
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.memory_view import (
    NOT_TENSORS,
    MemoryBar,
    MemoryBySize,
    MemoryLine,
    parts_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Thinner parts cannot be seen in a bar: the table has them, the legend does not.
VISIBLE_SHARE = 0.004
NAME_LENGTH = 26
# Of a place on the axis, and of the whole axis at least, so that no bar is a hair.
BAR_SHARE, LEAST_SHARE = 0.8, 1 / 45
# Lines closer than this share of the height bear one label.
LINE_SHARE = 0.07
LEGEND_ENTRY_INCHES = 2.1
LEGEND_ROW_INCHES = 0.17


def memory_chart(name: str, title: str, what: str, shown: MemoryBySize) -> Chart:
    """what: of which memory, for the caption."""
    bars, lines, recommended = shown.bars, shown.lines, shown.recommended
    sources = sorted({bar.source for bar in bars})

    def draw(palette: Palette, width_inches: float) -> Figure:
        parts = parts_of(bars)
        columns = max(int(width_inches // LEGEND_ENTRY_INCHES), 1)
        rows = -(-(len(parts) + bool(recommended) + bool(shown.measured)) // columns)
        figure, (axis,) = new_figure(palette, width_inches, 3.1 + LEGEND_ROW_INCHES * rows)
        largest = max([bar.total_bytes for bar in bars] + [line.total_bytes for line in lines])
        unit, unit_name = (words.GIB, "GiB") if largest >= 2 * words.GIB else (words.MIB, "MiB")
        edges = _edges([bar.batch_size for bar in bars])
        batch_axis(
            axis,
            [bar.batch_size for bar in bars],
            palette,
            width_inches,
            wanted=[batch for _, batch in recommended],
        )
        _draw_bars(axis, bars, edges, parts, unit, palette)
        points = [(batch, size / unit) for batch, size in shown.measured if batch in edges]
        if points:
            axis.plot(*zip(*points, strict=True), "D", color=palette.ink, markersize=5, label="measured")
        axis.set_ylim(0, 1.14 * largest / unit)
        _draw_lines(axis, lines, unit, palette)
        _mark_recommended(axis, {bar.batch_size: bar for bar in bars}, edges, recommended, unit, palette)
        axis.grid(False, axis="x")
        axis.set_ylabel(unit_name, color=palette.ink)
        figure.legend(
            loc="outside lower left", fontsize=8.5, frameon=False, labelcolor=palette.ink, ncols=columns
        )
        return figure

    return Chart(
        name,
        title,
        " and ".join(sources),
        f"{what[:1].upper()}{what[1:]}.",
        memory_words(what, shown),
        memory_table(shown),
        draw,
    )


def _edges(batches: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Left and right of each size's bar on the axis of batch sizes, which is to scale in powers of two."""
    places = sorted(math.log2(batch) for batch in batches)
    gaps = [after - before for before, after in pairwise(places)]
    whole = places[-1] - places[0]
    half = max(BAR_SHARE * min([*gaps, 1.0]), LEAST_SHARE * whole) / 2
    return {batch: (batch * 2.0**-half, batch * 2.0**half) for batch in batches}


def _draw_bars(
    axis: Axes,
    bars: Sequence[MemoryBar],
    edges: Mapping[int, tuple[float, float]],
    parts: Sequence[str],
    unit: int,
    palette: Palette,
) -> None:
    tensors = [part for part in parts if part not in NOT_TENSORS]
    colours = {part: SERIES[number % len(SERIES)] for number, part in enumerate(tensors)}
    # What is not a tensor of the step is grey: the allocator, the libraries, the context.
    colours.update(zip((part for part in parts if part in NOT_TENSORS), NEUTRAL, strict=False))
    largest = max(bar.total_bytes for bar in bars)
    left = [edges[bar.batch_size][0] for bar in bars]
    widths = [edges[bar.batch_size][1] - edges[bar.batch_size][0] for bar in bars]
    tops = [0.0] * len(bars)
    for part in parts:
        heights = [dict(bar.parts).get(part, 0) / unit for bar in bars]
        seen = max(heights) * unit > VISIBLE_SHARE * largest
        label = part.replace("_", " ") if seen else "_"  # what starts with an underscore is in no legend
        axis.bar(
            left,
            heights,
            width=widths,
            align="edge",
            bottom=tops,
            color=colours[part],
            label=label,
            edgecolor=palette.paper,
            linewidth=0.4,
        )
        tops = [top + height for top, height in zip(tops, heights, strict=True)]


def _mark_recommended(
    axis: Axes,
    bars: Mapping[int, MemoryBar],
    edges: Mapping[int, tuple[float, float]],
    recommended: Sequence[tuple[str, int]],
    unit: int,
    palette: Palette,
) -> None:
    """A frame around each recommended bar with its batch size on it; one entry of the legend for all."""
    for number, batch in enumerate(sorted({batch for _, batch in recommended if batch in edges})):
        left, right = edges[batch]
        height = bars[batch].total_bytes / unit
        axis.bar(
            left,
            height,
            width=right - left,
            align="edge",
            fill=False,
            edgecolor=palette.accent,
            linewidth=1.8,
            label="_" if number else "recommended for a GPU",
        )
        axis.annotate(
            f"{batch:,}",
            (math.sqrt(left) * math.sqrt(right), height),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            color=palette.accent,
            bbox=_behind(palette),
        )


def _draw_lines(axis: Axes, lines: Sequence[MemoryLine], unit: int, palette: Palette) -> None:
    """Each GPU's memory, named at the line's left, where bars are low; lines side by side share a label."""
    top = axis.get_ylim()[1]
    groups: list[list[MemoryLine]] = []
    for line in sorted(lines, key=lambda one: one.total_bytes):
        axis.axhline(line.total_bytes / unit, linestyle="--", color=palette.ink, linewidth=1.1)
        if groups and (line.total_bytes - groups[-1][-1].total_bytes) / unit < LINE_SHARE * top:
            groups[-1].append(line)
        else:
            groups.append([line])
    for group in groups:
        named = [
            f"{words.shortened(one.name, NAME_LENGTH)} {words.gibibytes(one.total_bytes)}" for one in group
        ]
        axis.annotate(
            "; ".join(named),
            (0.01, group[-1].total_bytes / unit),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=8.5,
            color=palette.ink,
            bbox=_behind(palette),
        )


def _behind(palette: Palette) -> dict[str, Any]:
    """Paper behind a label that a line or a bar may cross."""
    return {"facecolor": palette.paper, "edgecolor": "none", "pad": 0.6}
