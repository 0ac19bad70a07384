"""A comparison on the terminal, within 80 columns: side by side up to three profiles, figure by figure beyond."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from profiler.comparing.cell_words import (
    not_compared,
    other_differences,
    profile_line,
    profile_name,
    ratio_text,
    value_text,
    verdict_text,
)
from profiler.comparing.comparison import LATENCY, Comparison, Row
from profiler.console import WIDTH
from profiler.reports.words import shortened

SIDE_BY_SIDE = 3
LABEL_COLUMNS = 26
CELL_COLUMNS = 17


def console_lines(comparison: Comparison) -> Iterator[str]:
    """All lines."""
    for number in range(len(comparison.views)):
        yield from _wrapped(f"{profile_name(comparison, number)} {profile_line(comparison, number)}", "   ")
    yield ""
    side_by_side = len(comparison.views) <= SIDE_BY_SIDE
    yield from _columns(comparison) if side_by_side else _figure_by_figure(comparison)
    if len(comparison.views) > 1:
        yield from _verdicts(comparison) if side_by_side else ()
        yield from _section("Not compared", not_compared(comparison))
        yield from _section("Also different", other_differences(comparison))


def _columns(comparison: Comparison) -> Iterator[str]:
    names = "".join(
        f"{profile_name(comparison, number):>{CELL_COLUMNS}}" for number in range(len(comparison.views))
    )
    yield f"{'':{LABEL_COLUMNS}}{names}"
    for row in comparison.rows:
        label = textwrap.wrap(row.label, LABEL_COLUMNS - 1)
        values = "".join(_right(value_text(row, cell)) for cell in row.cells)
        ratios = "".join(_right(ratio_text(cell)) for cell in row.cells).rstrip()
        yield f"{label[0]:{LABEL_COLUMNS}}{values}"
        rest = label[1:]
        if ratios or rest:
            first = rest.pop(0) if rest else ""
            yield f"{first:{LABEL_COLUMNS}}{ratios}".rstrip()
        yield from rest


def _right(text: str) -> str:
    return f"{shortened(text, CELL_COLUMNS - 1):>{CELL_COLUMNS}}"


def _figure_by_figure(comparison: Comparison) -> Iterator[str]:
    for row in comparison.rows:
        yield row.label if len(row.label) <= WIDTH else shortened(row.label, WIDTH)
        for number, cell in enumerate(row.cells):
            value, ratio = shortened(value_text(row, cell), 28), ratio_text(cell)
            yield f"  {profile_name(comparison, number):<6}{value:>28}{ratio:>16}".rstrip()
            if verdict := verdict_text(cell):
                yield from _wrapped(f"        {verdict}", " " * 10)


def _verdicts(comparison: Comparison) -> Iterator[str]:
    lines = [
        line for row in comparison.rows if row.kind == LATENCY for line in _row_verdicts(comparison, row)
    ]
    yield from _section("Latency, compared with #1", lines)


def _row_verdicts(comparison: Comparison, row: Row) -> Iterator[str]:
    for number, cell in enumerate(row.cells):
        if cell.difference is not None:
            name = profile_name(comparison, number)
            yield f"batch {row.batch_size}, {name}: {ratio_text(cell)}, {verdict_text(cell)}"


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        for line in lines:
            yield from _wrapped(f"  {line}", "    ")


def _wrapped(text: str, margin: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=margin, break_on_hyphens=False, drop_whitespace=True)
