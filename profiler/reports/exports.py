"""The files that `profile_model.py` writes besides the JSON: checked before the run, written at its end.

So are the packages that they need, and the page of a job of GitHub Actions: the file that the runner names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import OutputError, reason, write_text
from swinmr_profiling.configs.writing.output_claims import claimed_outputs
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.record.files.reading import LoadedProfile
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION, Profile
from swinmr_profiling.profiler.reports.charts.drawing import claimed_plots, write_plots
from swinmr_profiling.profiler.reports.views.view import view_of

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def summary_file() -> Path:
    """The file of this step. Raises OutputError outside of a job."""
    name = os.environ.get(SUMMARY_VARIABLE)
    if not name:
        raise OutputError(
            f"--github-summary: {SUMMARY_VARIABLE} is not set: this is no job of GitHub Actions"
        )
    return Path(name)


def add_to_summary(text: str) -> None:
    """Adds to what earlier commands of the step wrote. Raises OutputError."""
    file = summary_file()
    try:
        with file.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        raise OutputError(f"--github-summary {file}: {reason(error)}") from error


PACKAGES = {"jinja2": "Jinja2", "matplotlib": "matplotlib"}


class MissingPackageError(InputError):
    """A report was asked for whose packages are not installed; one line for the user."""


def require(modules: Sequence[str], purpose: str) -> None:
    """Raises MissingPackageError, which says how to install them, unless all these modules can be imported."""
    missing = [PACKAGES[module] for module in modules if not _can_be_imported(module)]
    if missing:
        names = " and ".join(missing)
        raise MissingPackageError(
            f'{purpose} needs {names}: pip install ".[report]", or pip install {" ".join(missing)}'
        )


def _can_be_imported(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


@dataclass(frozen=True)
class Exports:
    """Files and folder to write; None is not asked for.

    benchmark: for github-action-benchmark. github_summary: also to the summary of a job of GitHub Actions.
    """

    report: str | None = None
    csv: str | None = None
    markdown: str | None = None
    plots: str | None = None
    benchmark: str | None = None
    github_summary: bool = False

    @property
    def wanted(self) -> bool:
        return any((self.report, self.csv, self.markdown, self.plots, self.benchmark, self.github_summary))

    @contextmanager
    def prepared(self) -> Iterator[Exports]:
        """What this run writes, other names where another run is writing these; held until the block ends.

        Proves, before hours are spent measuring, that all of them can be made. Raises MissingPackageError, OutputError.
        """
        if self.report is not None:
            require(("jinja2", "matplotlib"), "--report")
        if self.plots is not None:
            require(("matplotlib",), "--plot")
        if self.github_summary:
            summary_file()
        files = (
            ("--report", self.report),
            ("--csv", self.csv),
            ("--markdown", self.markdown),
            ("--benchmark-json", self.benchmark),
        )
        with ExitStack() as held:
            report, csv, markdown, benchmark = held.enter_context(claimed_outputs(files))
            plots = self.plots and str(held.enter_context(claimed_plots(Path(self.plots))))
            yield replace(self, report=report, csv=csv, markdown=markdown, benchmark=benchmark, plots=plots)

    def write(self, profile: Profile, name: str) -> list[str]:
        """Writes everything about a profile; returns the files. Raises OutputError."""
        # Imported when they are needed: matplotlib takes a second.
        from swinmr_profiling.profiler.reports.benchmark_action import benchmark_text
        from swinmr_profiling.profiler.reports.csv_file import csv_text
        from swinmr_profiling.profiler.reports.html.html_file import html_text
        from swinmr_profiling.profiler.reports.markdown_file import markdown_text

        view = view_of(LoadedProfile(name, profile, SCHEMA_VERSION))
        written = []
        writers = (
            (self.report, html_text),
            (self.csv, csv_text),
            (self.markdown, markdown_text),
            (self.benchmark, benchmark_text),
        )
        for file, writer in writers:
            if file is not None:
                write_report(file, writer(view))
                written.append(file)
        if self.github_summary:
            add_to_summary(markdown_text(view))
            written.append("the job's summary")
        if self.plots is not None:
            try:
                files = write_plots(view, Path(self.plots))
                written.append(f"{self.plots} ({len(files)} charts)")
            except OSError as error:
                raise OutputError(f"{error.filename or self.plots}: {reason(error)}") from error
        return written


def write_report(file: str, text: str, option: str = "") -> None:
    """Replaces the file by the text, whole or not at all. Raises OutputError, which begins with the option."""
    try:
        write_text(Path(file), text)
    except OSError as error:
        raise OutputError(f"{option} {file}: {reason(error)}".lstrip()) from error
