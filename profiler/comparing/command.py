"""What `compare_profiles.py` does, and what `profile_model.py --configs` ends in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swinmr_profiling.profiler.comparing.comparison import Comparison, compare
from swinmr_profiling.profiler.comparing.console_table import console_lines
from swinmr_profiling.profiler.comparing.written_files import csv_text, html_text, markdown_text
from swinmr_profiling.profiler.record.files.reading import load_profile
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.exports import write_report
from swinmr_profiling.profiler.reports.github_summary import add_to_summary
from swinmr_profiling.profiler.reports.views.view import view_of

HTML_PACKAGES = ("jinja2", "matplotlib")


def compare_files(files: Sequence[str | Path]) -> Comparison:
    """Reads and compares profiles. Raises ProfileFileError for the first that cannot be used."""
    return compare([view_of(load_profile(file)) for file in files])


def show_comparison(console: Console, comparison: Comparison) -> None:
    console.title("PROFILES COMPARED")
    console.line()
    for line in console_lines(comparison, console.width):
        console.line(line)


def write_comparison(
    comparison: Comparison,
    html: str | None,
    markdown: str | None,
    csv: str | None,
    *,
    github_summary: bool = False,
) -> None:
    """Writes the files that were asked for. Raises OutputError for a file that cannot be written."""
    if github_summary:
        add_to_summary(markdown_text(comparison))
    for file, writer in ((html, html_text), (markdown, markdown_text), (csv, csv_text)):
        if file is not None:
            write_report(file, writer(comparison))
