"""Writing the profile so that no moment of failure loses what an earlier one had saved."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from swinmr_profiling.configs.atomic_files import check_writable, write_text
from swinmr_profiling.profiler.record.earlier_results import EarlierResults, ResultsOf

STANDARD_OUTPUT = "-"


def to_text(content: object, *, ascii_only: bool = False) -> str:
    """JSON text of a result. Raises ValueError for a NaN or an infinity, which JSON does not have.

    ascii_only: for a stream, whose encoding may be any: JSON's own escapes say the same in all of them.
    """
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=ascii_only) + "\n"


class ResultFile:
    """The file of `--output`, or standard output for "-".

    Where it knows what a result is, a content without a new one is not written over a file that was there before.
    """

    def __init__(self, output: str, results_of: ResultsOf | None = None) -> None:
        """results_of: what of a content would be missed; None: every content replaces the file."""
        self.to_standard_output = output == STANDARD_OUTPUT
        self.path = None if self.to_standard_output else Path(os.path.abspath(output))
        self.last_error: OSError | None = None
        self.earlier = None if results_of is None else EarlierResults(results_of)
        self.kept_earlier = False  # whether `finish` left the file as it was

    @property
    def name(self) -> str:
        return "standard output" if self.path is None else str(self.path)

    def prepare(self) -> None:
        """Makes the folder and proves that a file can be written there, before hours are spent measuring.

        Raises OutputError.
        """
        if self.path is not None:
            check_writable(self.path, "--output", for_devices="; - writes to standard output")
            if self.earlier is not None:
                self.earlier.read(self.path)

    def save(self, content: object) -> bool:
        """Writes what is known so far. False when the disk refuses; the last good file then stays."""
        if self.path is None or self._has_nothing_new(content):
            return True
        try:
            write_text(self.path, to_text(content))
        except OSError as error:
            self.last_error = error
            return False
        self.last_error = None
        if self.earlier is not None:
            self.earlier.are_replaced()
        return True

    def _has_nothing_new(self, content: object) -> bool:
        return self.earlier is not None and self.earlier.outweigh(content)

    def finish(self, content: object, *, replace: bool = False) -> str | None:
        """Writes the final state; returns a line for the user when it had to go elsewhere.

        Where the file cannot be written the result goes to the temporary folder, and where that fails too to
        standard error: it is never dropped. replace: over a file that was there before though nothing in it is new.
        """
        if replace and self.earlier is not None:
            self.earlier.are_replaced()
        if self.path is None:
            sys.stdout.write(to_text(content, ascii_only=True))
            sys.stdout.flush()
            return None
        self.kept_earlier = self._has_nothing_new(content)
        if self.save(content):
            return None
        assert self.last_error is not None
        reason = self.last_error.strerror or str(self.last_error)
        try:
            folder = Path(tempfile.mkdtemp(prefix="profile-"))
            write_text(folder / self.path.name, to_text(content))
            return f"{self.path} cannot be written ({reason}): the result is in {folder / self.path.name}"
        except OSError:
            sys.stderr.write(to_text(content, ascii_only=True))
            return f"{self.path} cannot be written ({reason}), nor the temporary folder: the result is above"
