"""A comparison as CSV: a line per figure and profile, values as they are in the JSON."""

from __future__ import annotations

from swinmr_profiling.configs.writing.atomic_files import table_text
from swinmr_profiling.profiler.comparing.comparison import Comparison

COLUMNS = (
    "figure", "batch_size", "label", "unit", "profile", "file", "value", "text", "source", "ratio_to_first",
    "verdict", "p_value", "not_comparable_because",
)  # fmt: skip


def csv_text(comparison: Comparison) -> str:
    """The whole file."""
    rows = []
    for row in comparison.rows:
        for number, (view, cell) in enumerate(zip(comparison.views, row.cells, strict=True)):
            verdict = None if cell.difference is None else cell.difference.verdict.value
            p_value = None if cell.difference is None else cell.difference.p_value
            rows.append(
                [
                    row.kind, row.batch_size, row.label, row.unit, number + 1, view.file, cell.value, cell.text,
                    cell.source, cell.ratio, verdict, p_value, "; ".join(cell.against),
                ]
            )  # fmt: skip
    return table_text(COLUMNS, rows)
