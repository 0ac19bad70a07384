"""Writing the profile so that no moment of failure loses what an earlier one had saved."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, write_text
from swinmr_profiling.configs.writing.output_claims import Claim, claim_free_file, say_another_name
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.record.files.earlier_results import EarlierResults, ResultsOf, keep_earlier
from swinmr_profiling.profiler.record.files.private_record import relative_path

STANDARD_OUTPUT = "-"


def to_text(content: object, *, ascii_only: bool = False) -> str:
    """JSON text of a result. Raises ValueError for a NaN or an infinity, which JSON does not have.

    ascii_only: for a stream, whose encoding may be any: JSON's own escapes say the same in all of them.
    """
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=ascii_only) + "\n"


class ResultFile:
    """The file of `--output`, or standard output for "-".

    Where it knows what a result is, a content without a new one is not written over a file that was there before.
    As a context: the file is this run's until the block ends, with the reports of it.
    """

    def __init__(
        self, output: str, results_of: ResultsOf | None = None, *, keeps_earlier: bool = False
    ) -> None:
        """results_of: what of a content would be missed; None: every content replaces the file.

        keeps_earlier: what the file held is kept beside it, for a name that nobody chose.
        """
        self.to_standard_output = output == STANDARD_OUTPUT
        self.path = None if self.to_standard_output else Path(os.path.abspath(output))
        self.last_error: OSError | None = None
        self._claim: Claim | None = None
        self.earlier = EarlierResults(results_of)
        self._keeps = keeps_earlier
        self.moved = False  # whether `prepare` took another name
        self.kept_earlier = False  # whether `finish` left the file as it was

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._claim is not None:
            self._claim.release()

    @property
    def name(self) -> str:
        return "standard output" if self.path is None else relative_path(self.path)

    def prepare(self, *, goes_on: bool = False) -> None:
        """Makes the folder and proves that a file can be written there, before hours are spent measuring.

        A file that another run is writing is left to it: this one takes another name, and says so. goes_on: it is
        that very file that is to be gone on from. Raises OutputError.
        """
        if self.path is not None:
            check_writable(self.path, "--output", for_devices="; - writes to standard output")
            asked = self.path
            self.path, self._claim = claim_free_file(asked)
            if self.path != asked:
                if goes_on:
                    raise OutputError(f"--resume: another run is writing {asked}: wait for its end")
                self.moved = True
                say_another_name(asked, self.path)
            self.earlier.read(self.path)

    def save(self, content: object) -> bool:
        """Writes what is known so far. False when the disk refuses; the last good file then stays."""
        if self.path is None or self.earlier.outweigh(content):
            return True
        try:
            self._keep_earlier(self.path)
            write_text(self.path, to_text(content))
        except OSError as error:
            self.last_error = error
            return False
        self.last_error = None
        self.earlier.are_replaced()
        return True

    def _keep_earlier(self, path: Path) -> None:
        if not self._keeps:
            return
        kept = keep_earlier(path)
        self._keeps = False
        if kept is not None:
            complain(f"the earlier {self.name} is kept as {relative_path(kept)}")

    def finish(self, content: object, *, replace: bool = False) -> str | None:
        """Writes the final state; returns a line for the user when it had to go elsewhere.

        Where the file cannot be written the result goes to the temporary folder, and where that fails too to
        standard error: it is never dropped. replace: over a file that was there before though nothing in it is new.
        """
        if replace:
            self.earlier.are_replaced()
        if self.path is None:
            try:
                sys.stdout.write(to_text(content, ascii_only=True))
                sys.stdout.flush()
                return None
            except OSError as error:  # a full disk behind it, a reader that went away
                self.last_error = error
                _drop_the_rest_of(sys.stdout)
                return self._elsewhere(content, "profile.json")
        self.kept_earlier = self.earlier.outweigh(content)
        return None if self.save(content) else self._elsewhere(content, self.path.name)

    def _elsewhere(self, content: object, name: str) -> str:
        error = self.last_error
        reason = (error.strerror if error else None) or str(error)
        try:
            file = Path(tempfile.mkdtemp(prefix="profile-")) / name
            write_text(file, to_text(content))
            return f"{self.name} cannot be written ({reason}): the result is in {file}"
        except OSError:
            sys.stderr.write(to_text(content, ascii_only=True))
            return f"{self.name} cannot be written ({reason}), nor the temporary folder: the result is above"


def _drop_the_rest_of(stream: TextIO) -> None:
    """What is still buffered would fail once more when Python exits, and change the exit status."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
