"""A comparison as Markdown."""

from __future__ import annotations

from swinmr_profiling.profiler.comparing.cell_words import (
    not_compared,
    other_differences,
    profile_line,
    profile_name,
    ratio_text,
    value_text,
    verdict_text,
)
from swinmr_profiling.profiler.comparing.comparison import Comparison
from swinmr_profiling.profiler.reports.markdown_file import escaped, table


def markdown_text(comparison: Comparison) -> str:
    """The whole file: a column per profile; ratios and verdicts are those to the first."""
    names = [profile_name(comparison, number) for number in range(len(comparison.views))]
    lines = ["# Profiles compared", ""]
    lines += [f"- {escaped(name)} {escaped(profile_line(comparison, i))}" for i, name in enumerate(names)]
    rows = [("", *names)]
    for row in comparison.rows:
        cells = []
        for cell in row.cells:
            parts = [value_text(row, cell), ratio_text(cell), verdict_text(cell)]
            cells.append("; ".join(part for part in parts if part))
        rows.append((row.label, *cells))
    lines += ["", *table(rows), ""]
    for title, texts in (
        ("Not compared", not_compared(comparison)),
        ("Also different", other_differences(comparison)),
    ):
        if texts:
            lines += [f"## {title}", "", *(f"- {escaped(text)}" for text in texts), ""]
    return "\n".join(lines)
