"""A chart's SVG made part of a page: its own identifiers, the page's colours, a name and words for readers of it."""

from __future__ import annotations

import re

from swinmr_profiling.profiler.reports.charts.drawing import Chart
from swinmr_profiling.profiler.reports.charts.palette import MARKED, VARIABLES

# Drawn twice, since text in an SVG grows with it: for a page, and for a phone. The style sheet shows one of them.
WIDTHS_INCHES = {"wide": 8.4, "narrow": 3.7}


def inline_svg(chart: Chart) -> str:
    """Both `<svg>` to be put into HTML as they are: every text in them has been escaped by matplotlib or here."""
    return "".join(_one(chart, kind, width) for kind, width in WIDTHS_INCHES.items())


def _one(chart: Chart, kind: str, width_inches: float) -> str:
    svg = chart.svg(MARKED, width_inches)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # Several charts stand in one page, and matplotlib names the parts of each alike.
    prefix = f"{chart.name}-{kind}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href="|href="|url\()#', rf"\1#{prefix}", svg)
    for marked, variable in VARIABLES.items():
        svg = svg.replace(marked, variable)

    def opening(found: re.Match[str]) -> str:
        """The first tag: as wide as the page lets it be, and named by the figure's own caption and words."""
        tag = re.sub(r' (width|height|version|xmlns|xmlns:xlink)="[^"]*"', "", found.group())
        named = f'role="img" aria-labelledby="{chart.name}-caption" aria-describedby="{chart.name}-words"'
        return f'{tag[:-1]} class="{kind}" {named}>'

    return re.sub(r"<svg [^>]*?>", opening, svg, count=1, flags=re.DOTALL)
