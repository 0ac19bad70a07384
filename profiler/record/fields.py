"""Reading the blocks of a profile that anybody may have written: every figure checked where it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# No count of a network comes near; beyond a float's range a chart could not be drawn.
LARGEST_FIGURE = 10**24
# Control characters are no valid XML, lone surrogates no valid UTF-8, and the marks that turn the direction of
# writing can make a name look like another.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class ProfileShapeError(ValueError):
    """A value of a profile that is not of the kind its schema promises; names the path."""


def printable(text: str) -> str:
    """The text with what cannot be shown safely replaced by U+FFFD."""
    return UNPRINTABLE.sub("�", text)


class Fields:
    """One object of the JSON. What is missing or null is None; what is of the wrong kind raises ProfileShapeError."""

    def __init__(self, block: Any, path: str = "") -> None:
        self.path = path
        if not isinstance(block, Mapping):
            raise ProfileShapeError(f"{path or 'the file'}: an object is expected, not {_kind(block)}")
        self._block = block

    def __contains__(self, key: str) -> bool:
        return self._block.get(key) is not None

    def keys(self) -> Iterator[str]:
        return iter(self._block)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _refuse(self, key: str, expected: str) -> ProfileShapeError:
        return ProfileShapeError(f"{self._at(key)}: {expected} is expected, not {_kind(self._block[key])}")

    def number(self, key: str) -> float | int | None:
        """A finite number."""
        value = self._block.get(key)
        if value is None:
            return None
        if not is_figure(value):
            raise self._refuse(key, "a finite number")
        return value

    def amount(self, key: str) -> float | int | None:
        """A number of at least 0."""
        value = self.number(key)
        if value is not None and value < 0:
            raise self._refuse(key, "a number of at least 0")
        return value

    def integer(self, key: str) -> int | None:
        """A whole number of at least 0."""
        value = self.amount(key)
        if value is not None and not isinstance(value, int):
            raise self._refuse(key, "a whole number")
        return value

    def text(self, key: str) -> str | None:
        """A string, made printable."""
        value = self._block.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._refuse(key, "a text")
        return printable(value)

    def flag(self, key: str) -> bool | None:
        value = self._block.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._refuse(key, "true or false")
        return value

    def block(self, key: str) -> Fields | None:
        return None if self._block.get(key) is None else Fields(self._block[key], self._at(key))

    def blocks(self, key: str) -> list[Fields]:
        """A list of objects; empty where there is none."""
        return [Fields(item, f"{self._at(key)}[{number}]") for number, item in enumerate(self.items(key))]

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty where there is none."""
        values = self.items(key)
        if not all(isinstance(value, str) for value in values):
            raise self._refuse(key, "a list of texts")
        return [printable(value) for value in values]

    def amounts(self, key: str) -> tuple[float, ...] | None:
        """A list of numbers of at least 0."""
        if self._block.get(key) is None:
            return None
        values = self.items(key)
        if not all(is_figure(value) and value >= 0 for value in values):
            raise self._refuse(key, "a list of numbers of at least 0")
        return tuple(values)

    def interval(self, key: str) -> tuple[float, float] | None:
        """[low, high]."""
        values = self.amounts(key)
        if values is None:
            return None
        if len(values) != 2:
            raise self._refuse(key, "[low, high]")
        return values[0], values[1]

    def shape(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers."""
        values = self.amounts(key)
        if values is not None and not all(isinstance(value, int) for value in values):
            raise self._refuse(key, "a list of whole numbers")
        return values

    def raw(self, key: str) -> Any:
        """The value as it stands in the file, unchecked."""
        return self._block.get(key)

    def items(self, key: str) -> Sequence[Any]:
        """A list of anything; empty where there is none."""
        value = self._block.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._refuse(key, "a list")
        return value


def is_figure(value: Any) -> bool:
    """A finite int or float of a size that a figure can have."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < LARGEST_FIGURE


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = printable(repr(value))
    return text if len(text) <= 40 else text[:37] + "..."
