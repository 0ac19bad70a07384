"""Writing the profile so that no moment of failure loses what an earlier one had saved."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from configs.atomic_files import check_writable, write_text

STANDARD_OUTPUT = "-"


def to_text(content: dict[str, Any], *, ascii_only: bool = False) -> str:
    """JSON text of a result. Raises ValueError for a NaN or an infinity, which JSON does not have.

    ascii_only: for a stream, whose encoding may be any: JSON's own escapes say the same in all of them.
    """
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=ascii_only) + "\n"


class ResultFile:
    """The file of `--output`, or standard output for "-"."""

    def __init__(self, output: str) -> None:
        self.to_standard_output = output == STANDARD_OUTPUT
        self.path = None if self.to_standard_output else Path(os.path.abspath(output))
        self.last_error: OSError | None = None
        self.content: dict[str, Any] | None = None  # what `finish` was given

    @property
    def name(self) -> str:
        return "standard output" if self.path is None else str(self.path)

    def prepare(self) -> None:
        """Makes the folder and proves that a file can be written there, before hours are spent measuring.

        Raises OutputError.
        """
        if self.path is not None:
            check_writable(self.path, "--output", for_devices="; - writes to standard output")

    def save(self, content: dict[str, Any]) -> bool:
        """Writes what is known so far. False when the disk refuses; the last good file then stays."""
        if self.path is None:
            return True
        try:
            write_text(self.path, to_text(content))
        except OSError as error:
            self.last_error = error
            return False
        self.last_error = None
        return True

    def finish(self, content: dict[str, Any]) -> str | None:
        """Writes the final state; returns a line for the user when it had to go elsewhere.

        Where the file cannot be written the result goes to the temporary folder, and where that fails too to
        standard error: it is never dropped.
        """
        self.content = content
        if self.path is None:
            sys.stdout.write(to_text(content, ascii_only=True))
            sys.stdout.flush()
            return None
        if self.save(content):
            return None
        reason = self.last_error.strerror or str(self.last_error)
        try:
            folder = Path(tempfile.mkdtemp(prefix="profile-"))
            write_text(folder / self.path.name, to_text(content))
            return f"{self.path} cannot be written ({reason}): the result is in {folder / self.path.name}"
        except OSError:
            sys.stderr.write(to_text(content, ascii_only=True))
            return f"{self.path} cannot be written ({reason}), nor the temporary folder: the result is above"
