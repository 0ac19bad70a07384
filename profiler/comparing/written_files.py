"""A comparison as files: CSV, HTML, Markdown."""

from __future__ import annotations

from swinmr_profiling.configs.writing.atomic_files import table_text
from swinmr_profiling.profiler.comparing import cell_words
from swinmr_profiling.profiler.comparing.charts import comparison_charts
from swinmr_profiling.profiler.comparing.comparison import Comparison
from swinmr_profiling.profiler.reports.html.page import Figure, render
from swinmr_profiling.profiler.reports.markdown_file import escaped, table
from swinmr_profiling.profiler.reports.views.cards import (
    INFERENCE_MEMORY,
    LATENCY,
    MACS,
    TRAINING_MEMORY,
    doubts_about,
)

COLUMNS = (
    "figure", "batch_size", "label", "unit", "profile", "file", "value", "text", "source", "ratio_to_first",
    "verdict", "p_value", "not_comparable_because",
)  # fmt: skip


def csv_text(comparison: Comparison) -> str:
    """A line per figure and profile, values as they are in the JSON."""
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


def markdown_text(comparison: Comparison) -> str:
    """A column per profile; ratios and verdicts are those to the first."""
    names = [cell_words.profile_name(number) for number in range(len(comparison.views))]
    lines = ["# Profiles compared", ""]
    lines += [
        f"- {escaped(name)} {escaped(cell_words.profile_line(comparison, i))}" for i, name in enumerate(names)
    ]
    rows = [("", *names)]
    for row in comparison.rows:
        cells = []
        for cell in row.cells:
            parts = [
                cell_words.value_text(row, cell),
                cell_words.ratio_text(cell),
                cell_words.verdict_text(cell),
            ]
            cells.append("; ".join(part for part in parts if part))
        rows.append((row.label, *cells))
    lines += ["", *table(rows), ""]
    for title, texts in (
        ("Not compared", cell_words.not_compared(comparison)),
        ("Also different", cell_words.other_differences(comparison)),
    ):
        if texts:
            lines += [f"## {title}", "", *(f"- {escaped(text)}" for text in texts), ""]
    return "\n".join(lines)


TOUCHED = {
    "comparison_latency": LATENCY,
    "comparison_inference_memory": INFERENCE_MEMORY,
    "comparison_training_memory": TRAINING_MEMORY,
    "comparison_macs": MACS,
}  # fmt: skip


def html_text(comparison: Comparison) -> str:
    """The whole page."""
    figures = [
        Figure(chart, _doubts(comparison, TOUCHED[chart.name])) for chart in comparison_charts(comparison)
    ]
    return render("comparison.html.j2", comparison=comparison, say=cell_words, figures=figures)


def _doubts(comparison: Comparison, what: str) -> tuple[str, ...]:
    """Warnings of each profile that touch a chart."""
    return tuple(
        f"{cell_words.profile_name(number)}: {text}"
        for number, view in enumerate(comparison.views)
        for text in doubts_about(view.profile.warnings, what)
    )
