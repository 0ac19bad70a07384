"""What options of the commands may be: parsers for `type=`, and a parser that ends in one line."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from swinmr_profiling.configs.writing.standard_streams import printable
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT


class OneLineParser(argparse.ArgumentParser):
    """Ends with one line on standard error and exit status 2, without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"error: {printable(message)} (--help lists the options)\n")


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
