"""Writing the profile so that no moment of failure loses what an earlier one had saved."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from profiler.earlier_results import EarlierResults, ResultsOf
from training.atomic_files import replacing

STANDARD_OUTPUT = "-"


class OutputError(ValueError):
    """The place to write to cannot be written; one line for the user."""


def to_text(content: dict[str, Any]) -> str:
    """JSON text of a result. Raises ValueError for a NaN or an infinity, which JSON does not have."""
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_atomically(file: Path, text: str) -> None:
    """Replaces the file by the text, or leaves it as it was: temporary file beside it, fsync, rename.

    Raises OSError.
    """
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


class ResultFile:
    """The file of `--output`, or standard output for "-".

    Where it knows what a result is, a content without a new one is not written over a file that was there before.
    """

    def __init__(self, output: str, results_of: ResultsOf | None = None) -> None:
        """results_of: what of a content would be missed; None: every content replaces the file."""
        self.to_standard_output = output == STANDARD_OUTPUT
        self.path = None if self.to_standard_output else Path(os.path.abspath(output))
        self.last_error: OSError | None = None
        self.content: dict[str, Any] | None = None  # what `finish` was given
        self.earlier = None if results_of is None else EarlierResults(results_of)
        self.kept_earlier = False  # whether `finish` left the file as it was

    @property
    def name(self) -> str:
        return "standard output" if self.path is None else str(self.path)

    def prepare(self) -> None:
        """Makes the folder and proves that a file can be written there, before hours are spent measuring.

        Raises OutputError.
        """
        if self.path is None:
            return
        try:
            if self.path.is_dir():
                raise OutputError(f"--output {self.path}: is a folder; name a file in it")
            if self.path.exists() and not self.path.is_file():
                # Replacing /dev/null by a file would break the machine.
                raise OutputError(f"--output {self.path}: is no ordinary file; - writes to standard output")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
            if self.earlier is not None:
                self.earlier.read(self.path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputError(f"--output {self.path}: cannot be written: {reason}") from error

    def save(self, content: dict[str, Any]) -> bool:
        """Writes what is known so far. False when the disk refuses; the last good file then stays."""
        if self.path is None or self._has_nothing_new(content):
            return True
        try:
            write_atomically(self.path, to_text(content))
        except OSError as error:
            self.last_error = error
            return False
        self.last_error = None
        if self.earlier is not None:
            self.earlier.are_replaced()
        return True

    def _has_nothing_new(self, content: dict[str, Any]) -> bool:
        return self.earlier is not None and self.earlier.outweigh(content)

    def finish(self, content: dict[str, Any], *, replace: bool = False) -> str | None:
        """Writes the final state; returns a line for the user when it had to go elsewhere.

        Where the file cannot be written the result goes to the temporary folder, and where that fails too to
        standard error: it is never dropped. replace: over a file that was there before though nothing in it is new.
        """
        self.content = content
        if replace and self.earlier is not None:
            self.earlier.are_replaced()
        if self.path is None:
            sys.stdout.write(to_text(content))
            sys.stdout.flush()
            return None
        self.kept_earlier = self._has_nothing_new(content)
        if self.save(content):
            return None
        reason = self.last_error.strerror or str(self.last_error)
        try:
            folder = Path(tempfile.mkdtemp(prefix="profile-"))
            write_atomically(folder / self.path.name, to_text(content))
            return f"{self.path} cannot be written ({reason}): the result is in {folder / self.path.name}"
        except OSError:
            sys.stderr.write(to_text(content))
            return f"{self.path} cannot be written ({reason}), nor the temporary folder: the result is above"
