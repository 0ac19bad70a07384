"""The bar chart: MACs of an image, by component."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swinmr_profiling.configs.writing.atomic_files import replacing
from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    AnyPipeline,
    PipelineCost,
    cheapest_first,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROLE_COLOURS = {
    "denoiser": "#4063a3",
    "text_encoder": "#d98e2b",
    "vae_decode": "#4f9d69",
    "vae_encode": "#9bc8a8",
    "prior": "#8a6bb1",
    "image_encoder": "#c0504d",
    "safety_checker": "#8c8c8c",
}
INCHES_PER_BAR = 0.34
DOTS_PER_INCH = 130


def write_chart(pipelines: Sequence[AnyPipeline], file: Path) -> None:
    """A PNG with a bar per pipeline, the dearest on top, its components stacked.

    Raises PipelineError without matplotlib, OSError for a file that cannot be written.
    """
    figure = drawn_chart(cheapest_first(pipelines))
    with replacing(file) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH, format="png")


def drawn_chart(done: Sequence[PipelineCost]) -> Figure:
    """The figure, of pipelines from the cheapest on. Raises PipelineError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PipelineError('the chart needs the package matplotlib: pip install ".[train]"') from error
    figure = Figure(figsize=(9, 1.7 + INCHES_PER_BAR * max(len(done), 2)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = set()
    for row, cost in enumerate(done):
        left = 0.0
        for role, colour in ROLE_COLOURS.items():
            if macs := cost.macs_of(role):
                label = role.replace("_", " ") if role not in drawn else None
                axes.barh(row, macs / 1e12, left=left, color=colour, label=label)
                drawn.add(role)
                left += macs / 1e12
        axes.text(left, row, f" {left:,.1f}", va="center", fontsize=8)
    axes.set_yticks(
        range(len(done)),
        [f"{cost.definition.name}  {cost.size}, {cost.denoiser.calls} calls" for cost in done],
        fontsize=8,
    )
    axes.set_xlabel("TMACs per run (FLOPs are 2 x MACs)")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    # Below the axes: inside them it would lie on the bars of the dearest.
    figure.legend(fontsize=8, loc="outside lower center", frameon=False, ncols=len(drawn) or 1)
    return figure
