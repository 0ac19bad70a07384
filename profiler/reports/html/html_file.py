"""A profile as one HTML file: cards, charts, the tree of modules, the environment, and what is missing."""

from __future__ import annotations

from swinmr_profiling.profiler.reports.charts.chart_texts import training_table
from swinmr_profiling.profiler.reports.charts.drawing import charts_of
from swinmr_profiling.profiler.reports.html.page import Figure, render
from swinmr_profiling.profiler.reports.views.cards import (
    LATENCY,
    MACS,
    cards_of,
    doubts_about,
    what_is_missing,
)
from swinmr_profiling.profiler.reports.views.view import ProfileView

EXPLAINED = (
    ("latency", "Latency"),
    ("throughput", "Throughput"),
    ("memory_inference", "Memory of inference"),
    ("memory_training", "Memory of training"),
)
# The figures of a throughput are those of the latency.
TOUCHED = {"throughput": LATENCY}


def html_text(view: ProfileView) -> str:
    """The whole page."""
    warnings = view.profile.warnings
    figures = [
        Figure(chart, doubts_about(warnings, TOUCHED.get(chart.name, chart.name)))
        for chart in charts_of(view)
    ]
    drawn = {figure.chart.name for figure in figures}
    return render(
        "report.html.j2",
        view=view,
        cards=cards_of(view),
        missing=what_is_missing(view),
        figures=figures,
        not_drawn=[title for name, title in EXPLAINED if name not in drawn],
        training_table=training_table(view.sizes),
        macs_doubts=doubts_about(warnings, MACS),
    )
