"""What `--verbose` adds to the terminal: percentiles and intervals, the memory of training, the environment."""

from __future__ import annotations

import textwrap

from swinmr_profiling.profiler.record.files.reading import LoadedProfile
from swinmr_profiling.profiler.record.limits import least_runs
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION, Profile
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.console.terminal import LEAST_PANEL_WIDTH, Console
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.view import view_of

NAME_COLUMNS = 26


def print_details(console: Console, profile: Profile) -> None:
    """Prints the details of a profile."""
    view = view_of(LoadedProfile("the profile", profile, SCHEMA_VERSION))
    if view.ran:
        console.heading("Latency in detail (ms):")
        rows = []
        for size in view.ran:
            one = size.timing
            figures = (one.min_ms, one.median_ms, one.p90_ms, one.p95_ms, one.p99_ms, one.max_ms)
            rows.append([str(size.batch_size), *map(_short, figures)])
        console.table(["batch", "min", "median", "p90", "p95", "p99", "max"], rows, indent=2)
        if any("-" in row for row in rows):
            needed = ", ".join(f"p{p} {least_runs(p)}" for p in (90, 95, 99))
            console.line(f"  - is not known: runs needed: {needed}")
        console.line("  95 % interval of the median:")
        for size in view.ran:
            bounds = size.timing.ci95_median_ms
            text = "none: too few runs" if bounds is None else " to ".join(map(_short, bounds))
            console.line(f"  {size.batch_size:>5} {text}")
    if view.profile.memory_model is not None and view.profile.memory_model.untested_rules:
        console.heading("Rules of the memory prediction that no GPU has confirmed:")
        for rule in view.profile.memory_model.untested_rules:
            console.line(f"  - {rule}")
    if view.environment:
        console.heading("Environment:")
        for name, value in (*view.environment, *view.options):
            _print_named(console, words.shortened(name, NAME_COLUMNS - 1), value)


def _print_named(console: Console, name: str, value: str) -> None:
    """A name and what it is, beside it or, on a narrow terminal, below it. No word of it is broken in two."""
    narrow = console.width < LEAST_PANEL_WIDTH
    margin = " " * (4 if narrow else NAME_COLUMNS + 2)
    lines = textwrap.wrap(
        value, console.width - len(margin), break_on_hyphens=False, break_long_words=False
    ) or [""]
    if narrow:
        console.line(f"  {name}")
    else:
        console.line(f"  {name:<{NAME_COLUMNS}}{lines.pop(0)}".rstrip())
    for line in lines:
        console.line(margin + line)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{figure(value)}"
