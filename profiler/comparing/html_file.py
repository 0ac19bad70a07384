"""A comparison as one HTML file."""

from __future__ import annotations

from swinmr_profiling.profiler.comparing import cell_words
from swinmr_profiling.profiler.comparing.comparison import Comparison
from swinmr_profiling.profiler.reports.html.page import render


def html_text(comparison: Comparison) -> str:
    """The whole page."""
    return render("comparison.html.j2", comparison=comparison, say=cell_words)
