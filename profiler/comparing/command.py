"""What `compare_profiles.py` does, its options and gate, and what `profile_model.py --configs` ends in."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from swinmr_profiling.profiler.comparing.comparison import LATENCY, Comparison, Row, compare
from swinmr_profiling.profiler.comparing.console_table import console_lines
from swinmr_profiling.profiler.comparing.latency_difference import Verdict
from swinmr_profiling.profiler.comparing.written_files import csv_text, html_text, markdown_text
from swinmr_profiling.profiler.options.option_types import OneLineParser, Options, add_options
from swinmr_profiling.profiler.record.files.reading import load_profile
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.exports import add_to_summary, write_report
from swinmr_profiling.profiler.reports.views.view import view_of


def share(text: str) -> float:
    """ "5%" or "0.05" -> 0.05."""
    match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*(%?)\s*", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a share such as 5% or 0.05")
    value = float(match.group(1)) / (100 if match.group(2) else 1)
    if not match.group(2) and value >= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: {value:g} times slower? {match.group(1)}% is a share")
    return value


OPTIONS: Options = {
    "profiles": dict(
        nargs="+", metavar="PROFILE.json", help="written by profile_model.py, of any schema version"
    ),
    "--html": dict(metavar="FILE", help="write the comparison as one HTML file (extra: report)"),
    "--markdown": dict(metavar="FILE", help="write it as Markdown"),
    "--csv": dict(metavar="FILE", help="write it as CSV, a line per figure and profile"),
    "--github-summary": dict(action="store_true", help="add it to the summary of a GitHub Actions job"),
    "--fail-if-slower": dict(
        type=share,
        metavar="SHARE",
        help="exit 5 if a profile's latency is this much above the first's, such as 5%%, and not known to be noise",
    ),
    "--quiet": dict(action="store_true", help="print nothing but errors"),
}


def parse_compare_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="compare_profiles.py",
        description="Put profiles side by side: ratios to the first, what is noise, what is not comparable.",
    )
    add_options(parser, OPTIONS)
    return parser.parse_args(arguments)


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


def slower_than(comparison: Comparison, share: float) -> list[str]:
    """A line for every latency that fails the gate, none where all pass.

    A latency fails when it is more than `share` above the first's and the difference is significant, or cannot be told
    from noise because the runs are too few: what is not known to be noise does not pass. So does a batch size that ran
    in the first profile and failed in the other, and a profile that cannot be compared with the first at any size.
    """
    rows = [row for row in comparison.rows if row.kind == LATENCY]
    found = []
    for number in range(1, len(comparison.views)):
        lines = [line for row in rows if (line := _failure(row, number, share)) is not None]
        if not lines and not any(row.cells[number].ratio is not None for row in rows):
            lines = [_why_not_compared(rows, number)]
        found += [f"#{number + 1} {comparison.views[number].file}: {line}" for line in lines]
    return found


def _failure(row: Row, number: int, share: float) -> str | None:
    first, other = row.cells[0], row.cells[number]
    if first.value is not None and other.value is None and other.text != "not measured":
        return f"batch {row.batch_size}: {other.text}, and it ran in the first"
    difference = other.difference
    if difference is None or difference.ratio is None or difference.ratio <= 1 + share:
        return None
    if difference.verdict is not Verdict.SLOWER and not difference.verdict.undecided:
        return None
    return f"batch {row.batch_size}: {difference.ratio - 1:.1%} slower ({difference.verdict.value})"


def _why_not_compared(rows: list[Row], number: int) -> str:
    reasons = dict.fromkeys(reason for row in rows for reason in row.cells[number].against)
    return f"cannot be compared: {'; '.join(reasons) or 'no batch size ran in both'}"
