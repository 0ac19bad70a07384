"""A chart's SVG made part of a page: its own identifiers, the page's colours, a name and words for readers of it."""

from __future__ import annotations

import re

from swinmr_profiling.profiler.reports.charts.drawing import Chart
from swinmr_profiling.profiler.reports.charts.palette import MARKED, VARIABLES


def inline_svg(chart: Chart) -> str:
    """`<svg>` to be put into HTML as it is: every text in it has been escaped by matplotlib or here."""
    svg = chart.svg(MARKED)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # Several charts stand in one page, and matplotlib names the parts of each alike.
    prefix = f"{chart.name}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href="|href="|url\()#', rf"\1#{prefix}", svg)
    for marked, variable in VARIABLES.items():
        svg = svg.replace(marked, variable)
    return re.sub(
        r"<svg [^>]*?>", lambda found: _opening(found.group(), prefix), svg, count=1, flags=re.DOTALL
    )


def _opening(tag: str, prefix: str) -> str:
    """The first tag: as wide as the page lets it be, and named by the figure's own caption and words."""
    tag = re.sub(r' (width|height|version|xmlns|xmlns:xlink)="[^"]*"', "", tag)
    named = f'role="img" aria-labelledby="{prefix}caption" aria-describedby="{prefix}words"'
    return f"{tag[:-1]} {named}>"
