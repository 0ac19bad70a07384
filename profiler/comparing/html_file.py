"""A comparison as one HTML file."""

from __future__ import annotations

from profiler.comparing import cell_words
from profiler.comparing.comparison import Comparison
from profiler.reports.page import render


def html_text(comparison: Comparison) -> str:
    """The whole page."""
    return render("comparison.html.j2", comparison=comparison, say=cell_words)
