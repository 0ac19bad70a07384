"""Options of `profile_model.py` about what people look at: reports, exports, several configs, how much is printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from swinmr_profiling.profiler.reports.exports import Exports

SEVERAL_OUTPUT = "results"


def add_report_options(add: Callable[..., Any], default_output: str) -> None:
    """Adds them to a parser by its `add_argument`."""
    add(
        "--output",
        default=default_output,
        metavar="FILE",
        help=f"default {default_output}; -: stdout",
    )
    add("--resume", action="store_true", help="go on from the partial profile in --output")
    add("--report", metavar="FILE", help="also one whole HTML file (extra: report)")
    add("--csv", metavar="FILE", help="also CSV, a line per batch size")
    add("--markdown", metavar="FILE", help="also Markdown, to paste into an issue")
    add("--plot", metavar="DIR", help="also the charts as SVG and PNG (extra: report)")
    add("--benchmark-json", metavar="FILE", help="also the figures for github-action-benchmark")
    add("--github-summary", action="store_true", help="also Markdown in the summary of a GitHub Actions job")
    add("--memory-snapshot", metavar="FILE", help=(
        "the predicted step for pytorch.org/memory_viz"
    ))  # fmt: skip
    add("--trace", metavar="FILE", help="also a measured pass for Perfetto (.json, .gz)")
    add("--private", action="store_true", help="leave out paths, command line, machine's name")
    add("--quiet", action="store_true", help="the answer alone; failures on standard error")
    add("--verbose", action="store_true", help="also percentiles, intervals, assumptions, the environment")


def conflict(parsed: argparse.Namespace, default_output: str) -> str | None:
    """What is wrong with these options together, or None. Settles --output for several configs."""
    if parsed.quiet and parsed.verbose:
        return "--quiet and --verbose contradict each other"
    if parsed.configs is None and parsed.models is None:
        return None
    if parsed.config is not None and parsed.configs is not None:
        return "--config and --configs: name the configs in one of them"
    single = {
        "--benchmark-json": parsed.benchmark_json,
        "--memory-snapshot": parsed.memory_snapshot,
        "--trace": parsed.trace,
    }
    for name, file in single.items():
        if file is not None:
            return f"{name} names one file: profile one network at a time"
    if parsed.output == "-":
        option, each = ("--models", "network") if parsed.configs is None else ("--configs", "config")
        return f"{option} writes a profile for each {each}: --output names a folder, not -"
    if parsed.output == default_output:
        parsed.output = SEVERAL_OUTPUT
    return None


def exports_of(parsed: argparse.Namespace) -> Exports:
    return Exports(
        report=parsed.report,
        csv=parsed.csv,
        markdown=parsed.markdown,
        plots=parsed.plot,
        benchmark=parsed.benchmark_json,
        github_summary=parsed.github_summary,
    )
