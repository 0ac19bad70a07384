"""One page without anything from elsewhere: templates with autoescape, style and script written into the page.

A chart's SVG is made part of it: its own identifiers, the page's colours, a name and words for readers of it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swinmr_profiling.profiler.reports.charts.drawing import Chart
from swinmr_profiling.profiler.reports.charts.palette import MARKED, VARIABLES
from swinmr_profiling.profiler.reports.views import words

if TYPE_CHECKING:
    from markupsafe import Markup

# A figure and its unit, which a line's end would part.
FIGURE = re.compile(r"[\d.,]+ (?:GiB|MiB|KiB|GB|MB|ms|s|J)\b")
TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(template: str, **values: Any) -> str:
    """The HTML of a page. Every value is escaped; only `Markup` made by our own writers is not.

    The page's policy lets no script run but ours (by its hash) and nothing be fetched at all: a text that somebody
    smuggled past the escaping would still be inert.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["w"] = words
    environment.filters["whole"] = whole_figures
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return environment.get_template(template).render(
        policy=policy,
        script=Markup(script),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        **values,
    )


def whole_figures(text: object) -> Any:
    """A text as markup, escaped, in which no line ends between a figure and its unit."""
    from markupsafe import Markup, escape

    return Markup(FIGURE.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


# Drawn twice, since text in an SVG grows with it: for a page, and for a phone. The style sheet shows one of them.
WIDTHS_INCHES = {"wide": 8.4, "narrow": 3.7}


@dataclass(frozen=True)
class Figure:
    """A chart and the warnings that touch it, as a template takes them."""

    chart: Chart
    doubts: tuple[str, ...]

    @property
    def svg(self) -> Markup:
        """As it stands in the page: every text in it has been escaped."""
        from markupsafe import Markup

        return Markup(inline_svg(self.chart))


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
