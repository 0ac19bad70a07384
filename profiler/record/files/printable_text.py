"""Texts of files that anybody may have written, made fit to be shown."""

from __future__ import annotations

import re

# Control characters are not valid XML, lone surrogates no valid UTF-8, and the marks that turn the direction of
# writing can make a name look like another.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """The text with what cannot be shown safely replaced by U+FFFD."""
    return UNPRINTABLE.sub("�", text)
