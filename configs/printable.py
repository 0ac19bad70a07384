"""Text from files and names as a terminal or a spreadsheet may show it.

No control character acts, no word fills the screen, no cell is taken for a formula.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# A path of a usual length is shown whole.
LONGEST_WORD = 300
SHOWN_OF_A_WORD = 100
# C0 and C1 controls (an escape sequence begins with one), separators of lines, and what turns the direction of text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
# What begins a formula in a spreadsheet.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_CONTROL = re.compile(f"[{_CONTROLS}]")
_BREAK = re.compile("[\n\t]")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


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


def complain(text: object) -> None:
    """A message for the user on standard error: errors, warnings, what was recognised."""
    print(printable(str(text)), file=sys.stderr)


def table_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV (RFC 4180) with figures as they are in the JSON."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow([_cell(name) for name in header])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet takes a text that starts with one of these for a formula and runs it."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value
