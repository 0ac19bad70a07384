"""Tables and panels of a given width. No figure is cut: a table that is too wide goes on below, names again."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from rich.box import ROUNDED
from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

GAP = 2
# Below it a panel's border takes too much of a line.
LEAST_PANEL_WIDTH = 60
# What a column of names keeps where it has to fold.
LEAST_NAME_WIDTH = 12


def table_lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    names: int = 1,
    left: int = 0,
    indent: int = 0,
) -> list[str]:
    """The lines of a table, none wider than `width` unless one figure is.

    names: how many columns at the left are names: they fold where they must, and stand again before each part of a
    table that does not fit. left: columns that stand to the left, at least the names. The rest are figures.
    """
    width -= indent
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    lines: list[str] = []
    for columns in _parts(widths, width, names):
        if lines:
            lines.append("")
        table = Table(box=None, padding=(0, GAP // 2), pad_edge=False)
        for number in columns:
            justify: Literal["left", "right"] = "left" if number < max(names, left) else "right"
            table.add_column(
                Text(headings[number]), justify=justify, no_wrap=number >= names, overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(row[number]) for number in columns))
        lines += [f"{' ' * indent}{line}".rstrip() for line in _rendered(table, width)]
    return lines


def _parts(widths: Sequence[int], width: int, names: int) -> list[list[int]]:
    """Numbers of the columns of each part."""
    left = list(range(names))
    room = width - min(sum(widths[:names]) + GAP * names, max(width // 2, LEAST_NAME_WIDTH * names))
    parts: list[list[int]] = []
    taken = 0
    for number in range(names, len(widths)):
        needed = widths[number] + (GAP if taken else 0)
        if not parts or taken + needed > room:
            parts.append([*left])
            taken, needed = 0, widths[number]
        parts[-1].append(number)
        taken += needed
    return parts or [left]


def panel_lines(title: str, lines: Sequence[str], width: int) -> list[str]:
    """The lines in a frame, for a terminal that shows colours."""
    panel = Panel(Text("\n".join(lines)), title=title, title_align="left", box=ROUNDED, border_style="green")
    return _rendered(panel, width, coloured=True)


def _rendered(what: Table | Panel, width: int, *, coloured: bool = False) -> list[str]:
    stream = io.StringIO()
    console = RichConsole(
        file=stream,
        width=width,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(what)
    return stream.getvalue().splitlines()
