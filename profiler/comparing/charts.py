"""Charts of a comparison: latency with its intervals, memory, MACs; a colour for each profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swinmr_profiling.profiler.comparing import cell_words
from swinmr_profiling.profiler.comparing.comparison import LATENCY, Comparison, Row
from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch
from swinmr_profiling.profiler.reports.charts.drawing import Chart, new_figure
from swinmr_profiling.profiler.reports.charts.palette import SERIES, Palette
from swinmr_profiling.profiler.reports.views import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_INCHES = 0.26
# Between a bar, or its interval, and the figure behind it.
LABEL_GAP_POINTS = 5
LABEL_LENGTH = 34
# What a figure takes behind its bar.
FIGURE_INCHES = 1.0
# More rows than this are not looked at in a chart; the table has them.
MAX_ROWS = 12
KINDS = (
    ("comparison_latency", "Latency", LATENCY, "ms", 1.0, "Median of each batch size; the line is its 95 % interval."),
    ("comparison_inference_memory", "Memory of inference", "inference_memory", "MiB", words.MIB, "Peak of each size."),
    ("comparison_training_memory", "Memory of training", "training_memory", "MiB", words.MIB,
     "The allocator's peak at each batch size."),
    ("comparison_macs", "MACs", "macs", "G", 1e9, "Multiply-adds of one forward pass."),
)  # fmt: skip


def comparison_charts(comparison: Comparison) -> list[Chart]:
    """Those for which at least one profile has a figure."""
    found = []
    for name, title, kind, unit, size, caption in KINDS:
        rows = [row for row in comparison.rows if row.kind == kind]
        known = [row for row in rows if any(cell.value is not None for cell in row.cells)]
        if known:
            found.append(_chart(comparison, name, title, known[:MAX_ROWS], unit, size, caption))
    return found


def _chart(
    comparison: Comparison, name: str, title: str, rows: Sequence[Row], unit: str, size: float, caption: str
) -> Chart:
    def draw(palette: Palette, width_inches: float) -> Figure:
        bars = len(comparison.views) * len(rows) + len(rows)
        columns = max(int(width_inches // 2.6), 1)
        legend = -(-len(comparison.views) // columns) * 0.2
        figure, (axis,) = new_figure(palette, width_inches, 0.8 + ROW_INCHES * bars + legend)
        _draw_rows(axis, comparison, rows, size, palette, width_inches)
        axis.set_xlabel(unit, color=palette.ink)
        figure.legend(
            loc="outside lower left", fontsize=8.5, frameon=False, labelcolor=palette.ink, ncols=columns
        )
        return figure

    sources = sorted({cell.source for row in rows for cell in row.cells if cell.source and cell.value})
    header = ("figure", *(_label(comparison, number) for number in range(len(comparison.views))))
    table = [
        (
            row.label,
            *(
                cell_words.value_text(row, cell) + _interval(comparison, row, number)
                for number, cell in enumerate(row.cells)
            ),
        )
        for row in rows
    ]
    texts = [
        f"{row.label}: {', '.join(cell_words.value_text(row, cell) for cell in row.cells)}" for row in rows
    ]
    return Chart(
        name,
        title,
        " and ".join(sources) or "counted",
        caption,
        f"{'; '.join(texts)}.",
        (header, *table),
        draw,
    )


def _label(comparison: Comparison, number: int) -> str:
    view = comparison.views[number]
    return f"{cell_words.profile_name(number)} {view.title}, {view.device}"


def _interval_of(comparison: Comparison, row: Row, number: int) -> list[float] | None:
    """The 95 % interval of a latency, in ms."""
    if row.kind != LATENCY or row.batch_size is None:
        return None
    size = comparison.views[number].size(row.batch_size)
    return size.timing.ci95_median_ms if isinstance(size, MeasuredBatch) else None


def _interval(comparison: Comparison, row: Row, number: int) -> str:
    found = _interval_of(comparison, row, number)
    return "" if found is None else f" ({' to '.join(map(words.milliseconds, found))})"


def _draw_rows(
    axis: Axes,
    comparison: Comparison,
    rows: Sequence[Row],
    size: float,
    palette: Palette,
    width_inches: float,
) -> None:
    """A group of bars for each row, the first profile on top."""
    count = len(comparison.views)
    furthest = max(cell.value or 0 for row in rows for cell in row.cells) / size
    for number in range(count):
        colour = SERIES[number % len(SERIES)]
        label = words.shortened(_label(comparison, number), LABEL_LENGTH)
        for place, row in enumerate(rows):
            cell, y = row.cells[number], place * (count + 1) + number
            value = (cell.value or 0) / size
            axis.barh(y, value, height=0.86, color=colour, label=label if place == 0 else "_")
            interval = _interval_of(comparison, row, number)
            end = value
            if interval is not None:
                axis.plot([bound / size for bound in interval], [y, y], color=palette.ink, linewidth=1.6)
                end = max(end, interval[1] / size)
            furthest = max(furthest, end)
            text = cell_words.figure_text(row, cell)
            axis.annotate(
                text,
                (end, y),
                (LABEL_GAP_POINTS, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=palette.ink,
            )
    axis.set_yticks(
        [place * (count + 1) + (count - 1) / 2 for place in range(len(rows))],
        ["" if row.batch_size is None else f"batch {row.batch_size}" for row in rows],
    )
    axis.set_ylim(len(rows) * (count + 1) - 1.4, -0.6)
    # Room for what stands behind the longest bar.
    axis.set_xlim(0, (furthest or 1) * (1 + FIGURE_INCHES / (width_inches - 2 * FIGURE_INCHES)))
    axis.locator_params(axis="x", nbins=max(int(width_inches), 3))
    axis.grid(False, axis="y")
