"""The one error that reading a config can end in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from swinmr_profiling.configs.writing.standard_streams import printable
from swinmr_profiling.input_error import InputError


class ConfigError(InputError):
    """A config that cannot be used, with every problem that was found in it.

    Attributes:
        file: the file as the caller named it, or None for a config that came from a dict.
        problems: one line per problem, without the file's name: where, what is wrong, what to do.

    `str(error)` is one line per problem, each with the file in front. Commands print it on standard error and
    exit 2.
    """

    def __init__(self, file: str | Path | None, problems: Iterable[str]) -> None:
        self.file = None if file is None else str(file)
        # Keys and values are the file's own words.
        self.problems: list[str] = [printable(problem, one_line=True) for problem in problems]
        prefix = "config" if self.file is None else printable(self.file, one_line=True)
        super().__init__("\n".join(f"{prefix}: {problem}" for problem in self.problems))


# (path of the key within a section, text) of what a section's own checks find.
Problems = Iterator[tuple[str, str]]


class CrossFieldError(ValueError):
    """What a section's own check found: (path of the key within that section, text) pairs."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{path}: {text}" for path, text in problems))
