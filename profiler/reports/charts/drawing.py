"""The charts of a report, drawn by matplotlib without a display, and written as files. They draw what the view holds.

Every chart has a title, words for those who do not see it, and the table it is drawn from.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, replacing
from swinmr_profiling.configs.writing.output_claims import claim_free_folder, say_another_name
from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch, Timing, ran, why_not
from swinmr_profiling.profiler.reports.charts.chart_texts import (
    latency_table,
    latency_words,
    throughput_table,
    throughput_words,
)
from swinmr_profiling.profiler.reports.charts.palette import LIGHT, SERIES, Palette
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.view import ProfileView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from swinmr_profiling.profiler.reports.views.view import ProfileView

WIDTH_INCHES = 6.4
MAX_ROWS = 16
# A number of an axis takes up to so much of it, with the space beside it.
TICK_INCHES = 0.5
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
        caption: one line; words: all of it, for those who do not see it.
        table: first row is the header.
        draw: in a palette and of a width in inches.
    """

    name: str
    title: str
    source: str
    caption: str
    words: str
    table: tuple[tuple[str, ...], ...]
    draw: Callable[[Palette, float], Figure]

    def svg(self, palette: Palette, width_inches: float = WIDTH_INCHES) -> str:
        """SVG text. Raises whatever matplotlib does."""
        buffer = io.StringIO()
        self._save(palette, width_inches, buffer, "svg")
        return buffer.getvalue()

    def write(self, file: Path, kind: str) -> None:
        """Writes "svg" or "png" on white. Raises OSError."""
        self._save(LIGHT, WIDTH_INCHES, file, kind)

    def _save(self, palette: Palette, width_inches: float, target: io.StringIO | Path, kind: str) -> None:
        import matplotlib

        metadata = {"Date": None, "Title": self.title} if kind == "svg" else {"Title": self.title}
        with matplotlib.rc_context(PARAMETERS):
            self.draw(palette, width_inches).savefig(target, format=kind, dpi=160, metadata=metadata)


def charts_of(view: ProfileView) -> list[Chart]:
    """The charts for which the profile has figures."""
    from swinmr_profiling.profiler.reports.charts.memory_chart import memory_chart

    found = []
    timed = [size for size in view.ran if size.timing.samples_ms]
    if timed:
        found.append(_latency_chart(timed))
    throughput = [size for size in view.ran if size.timing.images_per_second is not None]
    if throughput:
        found.append(_throughput_chart(view, throughput))
    inference, training = view.inference_memory, view.training_memory
    if inference is not None:
        found.append(memory_chart("memory_inference", "Memory of inference", inference.what, inference))
    if training is not None and training.bars:
        what = f"setting: {training.what}"
        found.append(memory_chart("memory_training", "Memory of training", what, training))
    return found


def new_figure(
    palette: Palette, width_inches: float, height_inches: float, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # No pyplot: it would look for a display, and keep every figure.
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained", facecolor=palette.paper)
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


def _latency_chart(sizes: Sequence[MeasuredBatch]) -> Chart:
    shown = sizes[:MAX_ROWS]

    def draw(palette: Palette, width_inches: float) -> Figure:
        figure, axes = new_figure(palette, width_inches, 0.55 + 0.72 * len(shown), len(shown))
        for axis, size in zip(axes, shown, strict=True):
            _draw_samples(axis, size.batch_size, size.timing, palette, width_inches)
        axes[-1].set_xlabel("ms per forward pass of the whole batch", color=palette.ink)
        return figure

    return Chart(
        "latency",
        "Latency of each batch size",
        "measured",
        "A dot for every run; line: the median; band: its 95 % interval.",
        latency_words(sizes),
        latency_table(sizes),
        draw,
    )


def _draw_samples(axis: Axes, batch_size: int, timing: Timing, palette: Palette, width_inches: float) -> None:
    """Every run as a dot, spread over the height in the order they ran; the median and its interval on top."""
    samples = timing.samples_ms
    heights = [0.15 + 0.7 * number / max(len(samples) - 1, 1) for number in range(len(samples))]
    if timing.ci95_median_ms is not None:
        axis.axvspan(*timing.ci95_median_ms, color=SERIES[4], alpha=0.35, linewidth=0)
    axis.plot(samples, heights, "o", markersize=3, color=palette.ink, alpha=0.65, markeredgewidth=0)
    axis.axvline(timing.median_ms, color=palette.accent, linewidth=1.6)
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.grid(False, axis="y")
    axis.spines["left"].set_visible(False)
    axis.set_ylabel(f"batch {batch_size}", rotation=0, ha="right", va="center", color=palette.ink)
    axis.ticklabel_format(useOffset=False, style="plain", axis="x")
    axis.locator_params(axis="x", nbins=max(int(width_inches), 3))


def _throughput_chart(view: ProfileView, sizes: Sequence[MeasuredBatch]) -> Chart:
    advice = view.profile.inference_advice
    knee = None if advice is None else view.size(advice.batch_size)
    failed = [size for size in view.sizes if not ran(size)]

    def draw(palette: Palette, width_inches: float) -> Figure:
        figure, (axis,) = new_figure(palette, width_inches, 3.2)
        batches = [size.batch_size for size in sizes]
        rates = [size.timing.images_per_second for size in sizes]
        every = [*batches, *(size.batch_size for size in failed)]
        batch_axis(axis, every, palette, width_inches)
        axis.plot(batches, rates, "o-", color=SERIES[0], linewidth=1.8)
        if knee is not None and ran(knee) and knee.timing.images_per_second is not None:
            axis.axvline(knee.batch_size, color=palette.accent, linewidth=1.2, linestyle="--")
            axis.plot(
                [knee.batch_size], [knee.timing.images_per_second], "o", markersize=10, color=palette.accent
            )
            # At the foot of its line, where the curve is not, on the side that has more room.
            right = knee.batch_size**2 <= min(every) * max(every)
            axis.annotate(
                f"knee: batch {knee.batch_size}",
                (knee.batch_size, 0.14),
                xycoords=("data", "axes fraction"),
                xytext=(7 if right else -7, 0),
                textcoords="offset points",
                ha="left" if right else "right",
                color=palette.accent,
            )
        for size in failed:
            axis.plot([size.batch_size], [0], "x", color=palette.muted, markersize=8, clip_on=False)
            axis.annotate(
                words.shortened(why_not(size)[0], 12),
                (size.batch_size, 0),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                color=palette.muted,
            )
        axis.set_ylim(0, 1.15 * max([*rates, 1e-9]))
        axis.set_ylabel("images per second", color=palette.ink)
        return figure

    at_knee = "" if knee is None else f"; the knee is batch {knee.batch_size}"
    return Chart(
        "throughput",
        "Throughput by batch size",
        "measured",
        f"Images per second against the batch size{at_knee}.",
        throughput_words(view, sizes),
        throughput_table(view.sizes),
        draw,
    )


def batch_axis(
    axis: Axes, batches: Sequence[int], palette: Palette, width_inches: float, wanted: Sequence[int] = ()
) -> None:
    """Batch sizes to scale, in powers of two. wanted: sizes whose number must be there; others where there is room."""
    axis.set_xscale("log", base=2)
    places = {batch: math.log2(batch) for batch in set(batches)}
    room = (max(places.values()) - min(places.values())) * TICK_INCHES / width_inches
    shown: list[int] = []
    for batch in (*wanted, max(places), min(places), *sorted(places)):
        if batch in places and all(abs(places[batch] - places[other]) >= room for other in shown):
            shown.append(batch)
    shown.sort()
    axis.set_xticks(shown, [f"{batch:,}" for batch in shown])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("batch size", color=palette.ink)


KINDS = ("svg", "png")


@contextmanager
def claimed_plots(asked: Path) -> Iterator[Path]:
    """The folder, or a free one where another run is writing its charts there; held until the block ends.

    Proves that every chart can be written. Raises OutputError.
    """
    if asked.exists() and not asked.is_dir():
        raise OutputError(f"--plot {asked}: is a file; name a folder")
    for name in CHART_NAMES:
        for kind in KINDS:
            check_writable(asked / f"{name}.{kind}", "--plot")
    folder, held = claim_free_folder(asked, "charts")
    if folder != asked:
        say_another_name(asked, folder)
    try:
        yield folder
    finally:
        held.release()


def write_plots(view: ProfileView, folder: Path) -> list[Path]:
    """Writes every chart that the profile has figures for as SVG and PNG; returns the files. Raises OSError."""
    written = []
    for chart in charts_of(view):
        for kind in KINDS:
            file = folder / f"{chart.name}.{kind}"
            with replacing(file) as temporary:
                chart.write(temporary, kind)
            written.append(file)
    return written
