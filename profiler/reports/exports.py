"""The files that `profile_model.py` writes besides the JSON: checked before the run, written at its end."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.profile_file import LoadedProfile
from profiler.profile_record import SCHEMA_VERSION
from profiler.reports.optional import require
from profiler.reports.view import view_of
from training.atomic_files import replacing


class ExportError(ValueError):
    """A report that cannot be written; one line for the user."""


@dataclass(frozen=True)
class Exports:
    """Files and folder to write; None is not asked for."""

    report: str | None = None
    csv: str | None = None
    markdown: str | None = None
    plots: str | None = None

    @property
    def wanted(self) -> bool:
        return any((self.report, self.csv, self.markdown, self.plots))

    def prepare(self) -> None:
        """Proves, before hours are spent measuring, that all of them can be made.

        Raises MissingPackageError and ExportError.
        """
        if self.report is not None:
            require(("jinja2", "matplotlib"), "--report")
        if self.plots is not None:
            require(("matplotlib",), "--plot")
        for option, file in (("--report", self.report), ("--csv", self.csv), ("--markdown", self.markdown)):
            if file is not None:
                check_writable(Path(file), option)
        if self.plots is not None:
            folder = Path(self.plots)
            if folder.exists() and not folder.is_dir():
                raise ExportError(f"--plot {folder}: is a file; name a folder")
            check_writable(folder / "chart", "--plot")

    def write(self, content: dict[str, Any], name: str) -> list[str]:
        """Writes everything from a profile's JSON; returns the files. Raises ExportError."""
        # Imported when they are needed: matplotlib takes a second.
        from profiler.reports.csv_file import csv_text
        from profiler.reports.html_file import html_text
        from profiler.reports.markdown_file import markdown_text
        from profiler.reports.plot_files import write_plots

        view = view_of(LoadedProfile(name, content, SCHEMA_VERSION))
        written = []
        for file, writer in ((self.report, html_text), (self.csv, csv_text), (self.markdown, markdown_text)):
            if file is not None:
                write_text(file, writer(view))
                written.append(file)
        if self.plots is not None:
            try:
                files = write_plots(view, Path(self.plots))
                written.append(f"{self.plots} ({len(files)} charts)")
            except OSError as error:
                raise ExportError(f"{self.plots}: cannot be written: {error.strerror or error}") from error
        return written


def check_writable(file: Path, option: str) -> None:
    """Makes the folder and tries it. Raises ExportError."""
    if file.is_dir():
        raise ExportError(f"{option} {file}: is a folder; name a file in it")
    if file.exists() and not file.is_file():
        raise ExportError(f"{option} {file}: is no ordinary file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise ExportError(f"{option} {file}: cannot be written: {error.strerror or error}") from error


def distinct(files: Sequence[tuple[str, str | None]]) -> None:
    """Refuses two options that name one file: the later would replace the earlier. Raises ExportError."""
    seen: dict[Path, str] = {}
    for option, file in files:
        if file is None or file == "-":
            continue
        place = Path(file).resolve()
        if place in seen:
            raise ExportError(f"{option} and {seen[place]} name the same file: {file}")
        seen[place] = option


def write_text(file: str, text: str) -> None:
    """Replaces the file by the text, whole or not at all. Raises ExportError."""
    try:
        with replacing(Path(file)) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise ExportError(f"{file}: cannot be written: {error.strerror or error}") from error
