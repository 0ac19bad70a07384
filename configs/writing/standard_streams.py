"""Standard output and standard error, and text from files and names as a terminal may show it.

What an encoding lacks is a question mark and ends nothing, no control character acts, no word fills the screen.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
from typing import TextIO

from swinmr_profiling.program import in_this_program

# A broken pipe, a hung-up terminal.
NOBODY_READS = (errno.EPIPE, errno.EIO)
# A path of a usual length is shown whole.
LONGEST_WORD = 300
SHOWN_OF_A_WORD = 100
# C0 and C1 controls (an escape sequence begins with one), separators of lines, and what turns the direction of text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_BREAK = re.compile("[\n\t]")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def replace_unknown_characters() -> None:
    """Called first of all by every command and by every process that runs a network, which may print.

    A stream's encoding is the terminal's, or what PYTHONIOENCODING says: a check mark in latin-1 would end the
    command in the middle of its report.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def printable(text: str, *, one_line: bool = False) -> str:
    """The text with control characters as escapes (`\\x1b`), and words of more than 300 characters cut in their middle.

    one_line: line ends and tabs become escapes too.
    """
    text = _CONTROL.sub(_escaped, text)
    if one_line:
        text = _BREAK.sub(_escaped, text)
    return _LONG_WORD.sub(_shortened, text)


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


def _shortened(match: re.Match[str]) -> str:
    word = match.group()
    return f"{word[:SHOWN_OF_A_WORD]}...[{len(word)} characters]...{word[-SHOWN_OF_A_WORD:]}"


def say(text: str = "") -> None:
    """A line on standard output; nobody reads it any more (`| head`): silence from then on, and the work goes on.

    Raises OSError, as on a full disk.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        if error.errno not in NOBODY_READS:
            raise
        leave_unread(sys.stdout)


def leave_unread(stream: TextIO) -> None:
    """What is written to the stream from now on goes nowhere: Python would complain once more at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


def complain(text: object) -> None:
    """A message for the user on standard error: errors, warnings, what was recognised."""
    print(in_this_program(printable(str(text))), file=sys.stderr)
