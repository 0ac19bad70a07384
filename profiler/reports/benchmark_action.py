"""Figures for github-action-benchmark: a list of {name, unit, value, range, extra}, smaller is better in all.

Format: the action's `customSmallerIsBetter` (its README, "Use custom benchmark suites").
"""

from __future__ import annotations

import json
from typing import TypedDict

from swinmr_profiling.profiler.reports.views.view import ProfileView
from swinmr_profiling.profiler.reports.views.words import MIB


class _Entry(TypedDict):
    name: str
    unit: str
    value: float
    extra: str


class BenchmarkEntry(_Entry, total=False):
    """One figure of the list."""

    range: str


def benchmark_text(view: ProfileView) -> str:
    """The file: medians with their interval, peaks of memory, MACs and parameters; what is not known is left out."""
    return json.dumps(benchmark_entries(view), indent=2) + "\n"


def benchmark_entries(view: ProfileView) -> list[BenchmarkEntry]:
    """Names begin with the profile's title, so that several profiles can stand in one chart."""
    found: list[BenchmarkEntry] = []

    def add(name: str, unit: str, value: float | None, extra: str, spread: str = "") -> None:
        if value is not None:
            entry = BenchmarkEntry(name=f"{view.title}: {name}", unit=unit, value=value, extra=extra)
            if spread:
                entry["range"] = spread
            found.append(entry)

    where = f"{view.device}, {view.hardware}, {view.precision or 'precision not recorded'}"
    for size in view.ran:
        interval = size.ci95_median_ms
        # The action prints a range behind the value: half of the interval's width.
        spread = "" if interval is None else f"± {(interval[1] - interval[0]) / 2:.4g}"
        add(f"latency, batch {size.batch_size}", "ms", size.median_ms, f"median, measured on {where}", spread)
        peak = None if size.peak_bytes is None else size.peak_bytes / MIB
        add(f"memory of inference, batch {size.batch_size}", "MiB", peak, f"measured on {where}")
    for size in view.sizes:
        training = size.training
        if training is not None and training.peak_bytes is not None:
            name = f"memory of training, batch {size.batch_size}"
            add(name, "MiB", training.peak_bytes / MIB, f"allocator's peak, {training.source}")
    if view.architecture is not None:
        one = view.architecture
        add("MACs", "MACs", one.macs, f"{one.source}, {one.macs_convention}")
        add("parameters", "parameters", one.parameters, one.source)
    return found
