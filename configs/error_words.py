"""Words of errors for a line that a user reads: what a library said, and which name was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def first_line(error: BaseException) -> str:
    """The first line of what was said, "" where nothing was."""
    return (str(error).strip().splitlines() or [""])[0]


def one_line(error: BaseException, most: int | None = None) -> str:
    """ "TypeError: what was said", of its first line at most so many characters; the type alone where nothing was."""
    said = first_line(error)[:most]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str, *, most: int = 1, likeness: float = 0.6
) -> str:
    """ "did you mean conv or conv2?", of the known names that are most like it; where none is, `otherwise`."""
    near = difflib.get_close_matches(name, list(known), n=most, cutoff=likeness)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
