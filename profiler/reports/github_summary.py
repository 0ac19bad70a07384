"""The summary page of a job of GitHub Actions: Markdown that is added to the file which the runner names."""

from __future__ import annotations

import os
from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import OutputError, reason

VARIABLE = "GITHUB_STEP_SUMMARY"


def summary_file() -> Path:
    """The file of this step. Raises OutputError outside of a job."""
    name = os.environ.get(VARIABLE)
    if not name:
        raise OutputError(f"--github-summary: {VARIABLE} is not set: this is no job of GitHub Actions")
    return Path(name)


def add_to_summary(text: str) -> None:
    """Adds to what earlier commands of the step wrote. Raises OutputError."""
    file = summary_file()
    try:
        with file.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        raise OutputError(f"--github-summary {file}: {reason(error)}") from error
