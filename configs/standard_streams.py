"""Standard output and standard error: what their encoding lacks is shown as a question mark and ends nothing."""

from __future__ import annotations

import io
import sys


def replace_unknown_characters() -> None:
    """Called first of all by every command and by every process that runs a network, which may print.

    A stream's encoding is the terminal's, or what PYTHONIOENCODING says: a check mark in latin-1 would end the
    command in the middle of its report.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
