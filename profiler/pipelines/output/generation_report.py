"""The block of figures that is printed for every generated image."""

from __future__ import annotations

from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord
from swinmr_profiling.profiler.pipelines.output.measured_report import print_figures
from swinmr_profiling.profiler.reports.console.terminal import Console


def print_image_profile(console: Console, name: str, profile: LiveRecord | FailedRecord) -> None:
    """Figures of one image; where there are none, why."""
    console.line()
    if not profile["enabled"]:
        console.line(f"Compute profile of {name}: none ({profile['reason']})")
        return
    console.line(f"Compute profile of {name}:")
    print_figures(console, profile)
