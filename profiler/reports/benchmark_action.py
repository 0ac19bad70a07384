"""Figures for github-action-benchmark: a list of {name, unit, value, range, extra}, smaller is better in all.

Format: the action's `customSmallerIsBetter` (its README, "Use custom benchmark suites").
"""

from __future__ import annotations

import json

from typing_extensions import NotRequired, TypedDict

from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.record.units import MIB
from swinmr_profiling.profiler.reports.views.view import ProfileView


class BenchmarkEntry(TypedDict):
    """One figure of the list."""

    name: str
    unit: str
    value: float
    range: NotRequired[str]
    extra: str


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

    profile = view.profile
    where = f"{view.device}, {view.hardware}, {profile.config.precision or 'precision not recorded'}"
    for size in view.ran:
        interval = size.timing.ci95_median_ms
        # The action prints a range behind the value: half of the interval's width.
        spread = "" if interval is None else f"± {(interval[1] - interval[0]) / 2:.4g}"
        add(
            f"latency, batch {size.batch_size}",
            "ms",
            size.timing.median_ms,
            f"median, measured on {where}",
            spread,
        )
        peak = None if size.memory.peak_bytes is None else size.memory.peak_bytes / MIB
        add(f"memory of inference, batch {size.batch_size}", "MiB", peak, f"measured on {where}")
    for block in view.sizes:
        if isinstance(block.training, TrainingRun):
            name = f"memory of training, batch {block.batch_size}"
            add(name, "MiB", block.training.peak_bytes / MIB, f"allocator's peak, {block.training.source}")
    one = profile.architecture
    if one is not None:
        add("MACs", "MACs", one.macs, f"{one.source}, {view.macs_convention}")
        add("parameters", "parameters", one.total_parameters, one.source)
    return found
