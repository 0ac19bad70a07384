#!/usr/bin/env python3
"""Puts profiles side by side: ratios to the first, whether a latency differs or is noise, what is not comparable.

    python scripts/compare_profiles.py results/small.json results/large.json
    python scripts/compare_profiles.py main.json branch.json --fail-if-slower 5%

Exit status: 0 done, 2 bad arguments or a file that is not a profile, 4 the comparison could not be printed, 5 slower
than --fail-if-slower allows, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.atomic_files import distinct
from swinmr_profiling.configs.writing.output_claims import claimed_outputs
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.comparing.command import (
    HTML_PACKAGES,
    compare_files,
    parse_compare_arguments,
    show_comparison,
    slower_than,
    write_comparison,
)
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_DONE,
    EXIT_GATE_FAILED,
    EXIT_PARTIAL,
)
from swinmr_profiling.profiler.reports.console.terminal import Console, terminal_columns
from swinmr_profiling.profiler.reports.exports import require, summary_file


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_compare_arguments(arguments)
    if parsed.html is not None:
        require(HTML_PACKAGES, "--html")
    if parsed.github_summary:
        summary_file()
    outputs = [("--html", parsed.html), ("--markdown", parsed.markdown), ("--csv", parsed.csv)]
    distinct(outputs, [(f"the profile {file}", file) for file in parsed.profiles])
    with claimed_outputs(outputs) as (html, markdown, csv):
        comparison = compare_files(parsed.profiles)
        console = Console(width=terminal_columns())
        if not parsed.quiet:
            show_comparison(console, comparison)
        write_comparison(comparison, html, markdown, csv, github_summary=parsed.github_summary)
    if parsed.fail_if_slower is not None:
        failures = slower_than(comparison, parsed.fail_if_slower)
        for line in failures:
            complain(f"error: --fail-if-slower {parsed.fail_if_slower:.3g}: {line}")
        if failures:
            return EXIT_GATE_FAILED
    return EXIT_PARTIAL if console.failed else EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
