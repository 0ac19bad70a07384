"""A profile as one HTML file: cards, charts, the tree of modules, the environment, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from swinmr_profiling.profiler.reports.charts.chart_texts import training_table
from swinmr_profiling.profiler.reports.charts.drawing import Chart, charts_of
from swinmr_profiling.profiler.reports.html.page import render
from swinmr_profiling.profiler.reports.html.svg_markup import inline_svg
from swinmr_profiling.profiler.reports.views.cards import cards_of
from swinmr_profiling.profiler.reports.views.doubts import LATENCY, MACS, doubts_about
from swinmr_profiling.profiler.reports.views.missing import what_is_missing
from swinmr_profiling.profiler.reports.views.module_view import ModuleNode
from swinmr_profiling.profiler.reports.views.view import ProfileView

EXPLAINED = (
    ("latency", "Latency"),
    ("throughput", "Throughput"),
    ("memory_inference", "Memory of inference"),
    ("memory_training", "Memory of training"),
)
# The figures of a throughput are those of the latency.
TOUCHED = {"throughput": LATENCY}


@dataclass(frozen=True)
class Figure:
    """A chart with its markup, and the warnings that touch it, as a template takes it."""

    chart: Chart
    svg: str
    doubts: tuple[str, ...] = ()


def html_text(view: ProfileView) -> str:
    """The whole page."""
    from markupsafe import Markup

    figures = [
        Figure(
            chart,
            Markup(inline_svg(chart)),
            doubts_about(view.profile.warnings, TOUCHED.get(chart.name, chart.name)),
        )
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
        share=_share_of(view.tree),
        macs_doubts=doubts_about(view.profile.warnings, MACS),
    )


def _share_of(tree: ModuleNode | None):
    """A module's share of all MACs, or None."""

    def share(node: ModuleNode) -> float | None:
        return None if tree is None or not tree.macs or node.macs is None else node.macs / tree.macs

    return share
