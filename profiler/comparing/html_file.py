"""A comparison as one HTML file."""

from __future__ import annotations

from swinmr_profiling.profiler.comparing import cell_words
from swinmr_profiling.profiler.comparing.charts import comparison_charts
from swinmr_profiling.profiler.comparing.comparison import Comparison
from swinmr_profiling.profiler.reports.html.html_file import Figure
from swinmr_profiling.profiler.reports.html.page import render
from swinmr_profiling.profiler.reports.html.svg_markup import inline_svg
from swinmr_profiling.profiler.reports.views.doubts import (
    INFERENCE_MEMORY,
    LATENCY,
    MACS,
    TRAINING_MEMORY,
    doubts_about,
)

TOUCHED = {
    "comparison_latency": LATENCY,
    "comparison_inference_memory": INFERENCE_MEMORY,
    "comparison_training_memory": TRAINING_MEMORY,
    "comparison_macs": MACS,
}  # fmt: skip


def html_text(comparison: Comparison) -> str:
    """The whole page."""
    from markupsafe import Markup

    figures = [
        Figure(chart, Markup(inline_svg(chart)), _doubts(comparison, TOUCHED[chart.name]))
        for chart in comparison_charts(comparison)
    ]
    return render("comparison.html.j2", comparison=comparison, say=cell_words, figures=figures)


def _doubts(comparison: Comparison, what: str) -> tuple[str, ...]:
    """Warnings of each profile that touch a chart."""
    return tuple(
        f"{cell_words.profile_name(comparison, number)}: {text}"
        for number, view in enumerate(comparison.views)
        for text in doubts_about(view.doubts, what)
    )
