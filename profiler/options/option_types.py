"""What options of the commands may be: parsers for `type=`, and a parser that ends in one line."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from swinmr_profiling.configs.writing.standard_streams import printable
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT
from swinmr_profiling.program import in_this_program, program_name, version

# Of a command: by the name of each option what `add_argument` takes.
Options = dict[str, dict[str, Any]]
CONFIG_SUFFIXES = (".json", ".yml", ".yaml", ".toml")


class _CompactHelp(argparse.HelpFormatter):
    """Options of one line where they fit."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # Of an option or a path nothing is broken at its hyphens.
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class OneLineParser(argparse.ArgumentParser):
    """Ends with one line on standard error and exit status 2, without the usage text; knows --version."""

    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        self._given: list[str] = []
        super().__init__(
            prog=program_name(prog or os.path.basename(sys.argv[0])),
            usage="%(prog)s [options]",
            formatter_class=_CompactHelp,
            **settings,
        )
        self.add_argument("--version", action="version", version=f"{self.prog} {version()}")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self._given = list(args or ())
        if "_ARGCOMPLETE" in os.environ:
            # Not a dependency: it is there where the user's shell asks by it.
            import argcomplete

            argcomplete.autocomplete(self)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        # A mistyped option explains whatever else seems to be missing.
        meant = self._mistyped()
        said = message if meant is None else meant
        self.exit(EXIT_BAD_INPUT, f"error: {in_this_program(printable(said))} (--help lists the options)\n")

    def _mistyped(self) -> str | None:
        known = list(self._option_string_actions)
        for word in self._given:
            option = word.partition("=")[0]
            if word == "--":
                return None
            if option.startswith("--") and not any(name.startswith(option) for name in known):
                near = difflib.get_close_matches(option, known, 1)
                return f"no option {option}: did you mean {near[0]}?" if near else None
        return self._config_without_option(known)

    def _config_without_option(self, known: Sequence[str]) -> str | None:
        """`train.py config.json`: the file stands where an option would name it."""
        if "--config" not in known or "--config" in self._given:
            return None
        for before, word in zip(["", *self._given], self._given, strict=False):
            if word.endswith(CONFIG_SUFFIXES) and not word.startswith("-") and not before.startswith("-"):
                return f"{word}: which option? For example --config {word}"
        return None


def add_options(parser: argparse._ActionsContainer, options: Options) -> None:
    """To a parser, or to a group of one."""
    for name, settings in options.items():
        parser.add_argument(name, **settings)


def first_of(*faults: tuple[object, str]) -> str | None:
    """What is said of the first fault that is there, None where none is."""
    return next((said for wrong, said in faults if wrong), None)


def parse_options(parser: argparse.ArgumentParser, arguments: Sequence[str], options: Options) -> Any:
    """The arguments, read by a parser that gets these options."""
    add_options(parser, options)
    return parser.parse_args(arguments)


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    return at_least(text, 1)


def non_negative_int(text: str) -> int:
    """A whole number of at least 0."""
    return at_least(text, 0)


def at_least(text: str, lowest: int) -> int:
    """A whole number of at least `lowest`."""
    if not re.fullmatch(r"[+-]?\d{1,18}", text) or int(text) < lowest:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least {lowest}")
    return int(text)


def positive_seconds(text: str) -> float:
    """A positive, finite number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a positive number of seconds")
    return seconds


def device(text: str) -> str:
    """ "auto", "cpu", "cuda" or "cuda:N"."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", text):
        raise argparse.ArgumentTypeError(f"{text!r}: one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    return text
