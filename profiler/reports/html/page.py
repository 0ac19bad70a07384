"""One page without anything from elsewhere: templates with autoescape, style and script written into the page."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from swinmr_profiling.profiler.reports.views import words

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
