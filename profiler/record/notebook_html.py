"""A block of a profile as a table for notebooks: its own figures in rows, what is nested folded up beneath them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

# Of a list or a mapping; the rest is counted.
MOST_ROWS = 40


def as_html(value: Mapping[str, Any]) -> str:
    """An HTML table. Everything in it is escaped; what is null is left out."""
    return f"<table>{''.join(_row(name, one) for name, one in value.items() if one is not None)}</table>"


def _row(name: str, value: Any) -> str:
    return f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{_cell(value)}</td></tr>'


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return _folded(f"{len(value)} entries", value.items()) if value else "none"
    if isinstance(value, list) and any(isinstance(one, (Mapping, list)) for one in value):
        return _folded(f"{len(value)} entries", ((str(number), one) for number, one in enumerate(value)))
    if isinstance(value, list):
        return escape(", ".join(map(str, value))) if value else "none"
    if isinstance(value, bool) or not isinstance(value, int):
        return escape(str(value))
    return f"{value:,}"


def _folded(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    known = [(str(name), value) for name, value in rows if value is not None]
    shown = "".join(_row(name, value) for name, value in known[:MOST_ROWS])
    rest = f"<p>and {len(known) - MOST_ROWS} more</p>" if len(known) > MOST_ROWS else ""
    return f"<details><summary>{title}</summary><table>{shown}</table>{rest}</details>"
