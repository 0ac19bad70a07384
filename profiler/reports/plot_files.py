"""The charts of a profile as files, for papers and slides."""

from __future__ import annotations

from pathlib import Path

from profiler.reports.charts import charts_of
from profiler.reports.view import ProfileView
from training.atomic_files import replacing

KINDS = ("svg", "png")


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
