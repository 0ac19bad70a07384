"""The charts of a profile as files, for papers and slides."""

from __future__ import annotations

from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, replacing
from swinmr_profiling.profiler.reports.charts.drawing import CHART_NAMES, charts_of
from swinmr_profiling.profiler.reports.views.view import ProfileView

KINDS = ("svg", "png")


def check_plots(folder: Path) -> None:
    """Proves that every chart can be written there. Raises OutputError."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"--plot {folder}: is a file; name a folder")
    for name in CHART_NAMES:
        for kind in KINDS:
            check_writable(folder / f"{name}.{kind}", "--plot")


def write_plots(view: ProfileView, folder: Path) -> list[Path]:
    """Writes every chart that the profile has figures for as SVG and PNG; returns the files. Raises OSError."""
    written = []
    for chart in charts_of(view):
        for kind in KINDS:
            file = folder / f"{chart.name}.{kind}"
            with replacing(file) as temporary:
                chart.write(temporary, kind)
            written.append(file)
    return written
