"""A comparison on the terminal: side by side up to three profiles where they fit, figure by figure beyond.

Names and reasons are shortened or wrapped; figures never are: what does not fit takes another line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import zip_longest

from swinmr_profiling.profiler.comparing.cell_words import (
    figure_text,
    kind_text,
    not_compared,
    other_differences,
    profile_line,
    profile_name,
    ratio_text,
    value_text,
    verdict_text,
)
from swinmr_profiling.profiler.comparing.comparison import LATENCY, Cell, Comparison, Row
from swinmr_profiling.profiler.reports.console.terminal import WIDTH
from swinmr_profiling.profiler.reports.views.words import shortened

SIDE_BY_SIDE = 3
LABEL_COLUMNS = 26
CELL_COLUMNS = 17
NAME_COLUMNS = 8
RATIO_COLUMNS = 15
VALUE_COLUMNS = 28


def console_lines(comparison: Comparison, width: int = WIDTH) -> Iterator[str]:
    """All lines, of at most `width` columns but for a figure that is longer by itself."""
    for number in range(len(comparison.views)):
        line = f"{profile_name(number)} {profile_line(comparison, number)}"
        yield from _wrapped(line, "   ", width)
    yield ""
    columns = _cell_columns(comparison, width)
    yield from _figure_by_figure(comparison, width) if columns is None else _columns(comparison, columns)
    if len(comparison.views) > 1:
        yield from _verdicts(comparison, width) if columns is not None else ()
        yield from _section("Not compared", not_compared(comparison), width)
        yield from _section("Also different", other_differences(comparison), width)


def _cell_columns(comparison: Comparison, width: int) -> int | None:
    """Columns of a cell, or None where the profiles do not stand side by side with every figure whole."""
    count = len(comparison.views)
    columns = min((width - LABEL_COLUMNS) // count, VALUE_COLUMNS)
    if count > SIDE_BY_SIDE or columns < CELL_COLUMNS:
        return None
    for row in comparison.rows:
        for cell in row.cells:
            figures = [ratio_text(cell), *([] if cell.value is None else [figure_text(row, cell)])]
            if max(map(len, figures)) >= columns:
                return None
    return columns


def _columns(comparison: Comparison, columns: int) -> Iterator[str]:
    names = "".join(f"{profile_name(number):>{columns}}" for number in range(len(comparison.views)))
    yield f"{'':{LABEL_COLUMNS}}{names}"
    for row in comparison.rows:
        values, ratios = _value_lines(row, columns), [[ratio_text(cell) for cell in row.cells]]
        lines = [*values, *(ratios if any(ratios[0]) else [])]
        labels = textwrap.wrap(row.label, LABEL_COLUMNS - 1)
        for label, cells in zip_longest(labels, lines, fillvalue=""):
            yield f"{label:{LABEL_COLUMNS}}{''.join(f'{cell:>{columns}}' for cell in cells)}".rstrip()


def _value_lines(row: Row, columns: int) -> list[list[str]]:
    """The values of a row's cells; where one is too long, what kind of figure they are on a line below."""
    whole = [value_text(row, cell) for cell in row.cells]
    if all(cell.value is None or len(text) < columns for cell, text in zip(row.cells, whole, strict=True)):
        return [[shortened(text, columns - 1) for text in whole]]
    figures = [_figure_or_why(row, cell, columns) for cell in row.cells]
    return [figures, [kind_text(row, cell) for cell in row.cells]]


def _figure_or_why(row: Row, cell: Cell, columns: int) -> str:
    text = figure_text(row, cell)
    return text if cell.value is not None else shortened(text, columns - 1)


def _figure_by_figure(comparison: Comparison, width: int) -> Iterator[str]:
    margin = " " * NAME_COLUMNS
    columns = min(VALUE_COLUMNS, width - NAME_COLUMNS)
    for row in comparison.rows:
        yield from _wrapped(row.label, "  ", width)
        for number, cell in enumerate(row.cells):
            name = f"  {profile_name(number):<{NAME_COLUMNS - 2}}"
            ratio = ratio_text(cell)
            value = f"{name}{value_text(row, cell):>{columns}}"
            beside = f"{value} {ratio:>{RATIO_COLUMNS}}"
            if len(beside) <= width:
                yield beside.rstrip()
            else:
                yield from _wrapped(value, margin, width)
                yield from _wrapped(f"{margin}{ratio:>{columns}}", margin, width) if ratio else ()
            if verdict := verdict_text(cell):
                yield from _wrapped(f"{margin}{verdict}", margin + "  ", width)


def _verdicts(comparison: Comparison, width: int) -> Iterator[str]:
    lines = [
        line for row in comparison.rows if row.kind == LATENCY for line in _row_verdicts(comparison, row)
    ]
    yield from _section("Latency, compared with #1", lines, width)


def _row_verdicts(comparison: Comparison, row: Row) -> Iterator[str]:
    for number, cell in enumerate(row.cells):
        if cell.difference is not None:
            name = profile_name(number)
            yield f"batch {row.batch_size}, {name}: {ratio_text(cell)}, {verdict_text(cell)}"


def _section(title: str, lines: list[str], width: int) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        for line in lines:
            yield from _wrapped(f"  {line}", "    ", width)


def _wrapped(text: str, margin: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=margin, break_on_hyphens=False)
