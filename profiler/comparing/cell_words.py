"""The cells of a comparison in words, the same for every writer."""

from __future__ import annotations

from collections.abc import Callable

from swinmr_profiling.profiler.comparing.comparison import Cell, Comparison, Row
from swinmr_profiling.profiler.reports.views import words

FORMATS: dict[str, Callable] = {
    "count": words.count,
    "operations": words.giga,
    "ms": words.milliseconds,
    "images/s": words.per_second,
    "bytes": words.mebibytes,
    "batch": words.count,
}


def figure_text(row: Row, cell: Cell) -> str:
    """ "181.54 ms"; of a figure that is not known why, "OOM"."""
    return FORMATS[row.unit](cell.value) if cell.value is not None else cell.text or words.UNKNOWN


def kind_text(row: Row, cell: Cell) -> str:
    """What the figure is beside what its row says: "(predicted)", "(fvcore)" for another counter's, mostly nothing."""
    if cell.value is None:
        return ""
    kinds = ["(fvcore)"] if row.unit == "operations" and cell.text == "fvcore" else []
    kinds += [f"({cell.source})"] if cell.source in ("predicted", "extrapolated") else []
    return " ".join(kinds)


def value_text(row: Row, cell: Cell) -> str:
    """ "181.54 ms", "OOM", "101.00 G (fvcore)"; a figure that was not measured says so."""
    return f"{figure_text(row, cell)} {kind_text(row, cell)}".rstrip()


def ratio_text(cell: Cell) -> str:
    """ "0.746 x", or "not comparable"."""
    if cell.against:
        return "not comparable"
    return "" if cell.ratio is None else words.ratio(cell.ratio)


def verdict_text(cell: Cell) -> str:
    """Whether a latency differs, with the test's p-value."""
    if cell.difference is None:
        return ""
    p_value = cell.difference.p_value
    shown = "" if p_value is None else f", p = {p_value:.3f}" if p_value >= 0.001 else ", p < 0.001"
    return f"{cell.difference.verdict.value}{shown}"


def profile_name(number: int) -> str:
    """ "#2"."""
    return f"#{number + 1}"


def profile_line(comparison: Comparison, number: int) -> str:
    """What a profile is: file, title, device, precision, status."""
    view = comparison.views[number]
    profile = view.profile
    precision = profile.config.precision or "precision not recorded"
    parts = [view.title, f"{view.device}, {view.hardware}", precision]
    if view.imported:
        parts.append("original script")
    elif profile.status != "complete":
        parts.append(f"{profile.status}: {profile.status_reason}")
    return f"{view.file} ({'; '.join(parts)})"


def not_compared(comparison: Comparison) -> list[str]:
    """A line for every profile and set of reasons: which figures have no ratio, and why."""
    found: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for row in comparison.rows:
        for number, cell in enumerate(row.cells):
            if cell.against:
                found.setdefault((number, cell.against), []).append(row.label)
    return [
        f"{profile_name(number)} with #1: {'; '.join(reasons)}. Not compared: {', '.join(labels)}."
        for (number, reasons), labels in sorted(found.items())
    ]


def other_differences(comparison: Comparison) -> list[str]:
    """What else is different and was compared all the same."""
    return [
        f"{profile_name(number)}: {'; '.join(notes)}."
        for number, notes in enumerate(comparison.notes)
        if notes
    ]
