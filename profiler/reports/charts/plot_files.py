"""The charts of a profile as files, for papers and slides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, replacing
from swinmr_profiling.configs.writing.output_claims import claim_free_folder, say_another_name
from swinmr_profiling.profiler.reports.charts.drawing import CHART_NAMES, charts_of
from swinmr_profiling.profiler.reports.views.view import ProfileView

KINDS = ("svg", "png")


@contextmanager
def claimed_plots(asked: Path) -> Iterator[Path]:
    """The folder, or a free one where another run is writing its charts there; held until the block ends.

    Proves that every chart can be written. Raises OutputError.
    """
    if asked.exists() and not asked.is_dir():
        raise OutputError(f"--plot {asked}: is a file; name a folder")
    for name in CHART_NAMES:
        for kind in KINDS:
            check_writable(asked / f"{name}.{kind}", "--plot")
    folder, held = claim_free_folder(asked, "charts")
    if folder != asked:
        say_another_name(asked, folder)
    try:
        yield folder
    finally:
        held.release()


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
