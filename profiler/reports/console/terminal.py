"""The terminal that reports are written to: its width, its colours, its encoding, and that nobody may be reading."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from swinmr_profiling.configs.writing.standard_streams import NOBODY_READS, complain, leave_unread, printable
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.layout import LEAST_PANEL_WIDTH, panel_lines, table_lines
from swinmr_profiling.program import in_this_program

WIDTH = 80
LEAST_WIDTH = 40
MOST_WIDTH = 120
GREEN, RED, YELLOW, RESET = "\033[32m", "\033[31m", "\033[33m", "\033[0m"


def takes_colour(stream: TextIO) -> bool:
    """Whether marks may be coloured: a terminal that can, and a user who has not set NO_COLOR (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _has_width(stream: TextIO) -> bool:
    """Whether somebody reads lines of so many columns: a terminal, or what COLUMNS stands for."""
    return bool(os.environ.get("COLUMNS")) or (hasattr(stream, "isatty") and stream.isatty())


def terminal_columns() -> int:
    """Columns of the terminal (or what COLUMNS says), at least 40; 80 where output goes to no terminal."""
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, LEAST_WIDTH)


def report_columns() -> int:
    """The same for a report of sentences, which are hard to read in longer lines: at most 120."""
    return min(terminal_columns(), MOST_WIDTH)


def wrapped(text: str, width: int = WIDTH) -> list[str]:
    """The text in lines of at most `width` columns; only a word that is longer, such as a path, is left whole."""
    if len(text) <= width:
        return [text]
    margin = " " * (len(text) - len(text.lstrip()))
    wrapper = textwrap.TextWrapper(
        width, margin, margin + "  ", break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(text.strip())


class Console:
    """Writes to a stream, and goes on in silence when nobody reads it any more (a closed terminal, `| head`)."""

    def __init__(self, stream: TextIO | None = None, width: int = WIDTH, *, verbose: bool = False) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.width = width
        self.verbose = verbose
        self.coloured = takes_colour(self.stream)
        self.failed = False  # part of the report was lost, on a full disk for example
        self._held: list[str] | None = None  # what follows the answer

    @contextlib.contextmanager
    def after(self, first: Callable[[], None]) -> Iterator[None]:
        """What is printed meanwhile comes out at the end, after what `first` prints; also where it ends early."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            first()
            for line in held:
                self._write(line)

    def line(self, text: str = "") -> None:
        for part in wrapped(in_this_program(printable(text)), self.width):
            self._write(part)

    def _marked(self, mark: str, colour: str, text: str, indent: int) -> None:
        first, *rest = wrapped(in_this_program(printable(f"{' ' * indent}{mark} {text}")), self.width)
        if self.coloured:
            first = first.replace(mark, f"{colour}{mark}{RESET}", 1)
        for part in (first, *rest):
            self._write(part)

    def _write(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        shown = text.encode(encoding, "replace").decode(encoding)
        try:
            self.stream.write(shown + "\n")
            self.stream.flush()
        except OSError as error:
            if error.errno not in NOBODY_READS:
                self.failed = True
                print(f"error: the report cannot be written: {error.strerror or error}", file=sys.stderr)
            self._fall_silent()
        except ValueError:
            if not self.stream.closed:
                raise
            self._fall_silent()

    def _fall_silent(self) -> None:
        leave_unread(self.stream)
        self.stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open for the rest of the run)

    def title(self, text: str) -> None:
        self.line("=" * self.width)
        self.line(text.center(self.width).rstrip())
        self.line("=" * self.width)

    @property
    def panel_width(self) -> int:
        """Columns of a panel's lines."""
        return self.width - 4 if self._frames else self.width

    @property
    def _frames(self) -> bool:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return self.coloured and self.width >= LEAST_PANEL_WIDTH and encoding.lower().startswith("utf")

    def panel(self, title: str, lines: Sequence[str]) -> None:
        """Lines of at most `panel_width`: in a frame where the terminal shows colours, else below their title."""
        shown = [in_this_program(printable(line)) for line in lines]
        for line in panel_lines(title, shown, self.width) if self._frames else [f"{title}:", *shown]:
            self._write(line)

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        names: int = 1,
        left: int = 0,
        indent: int = 0,
    ) -> None:
        """A table within the width; see `table_lines`."""
        cells = [[printable(cell) for cell in row] for row in rows]
        for line in table_lines(headings, cells, self.width, names=names, left=left, indent=indent):
            self._write(line)

    def entries(self, text: str) -> None:
        """Lines of a name and what is said of it; one that is too long goes on below that, in a pipe it stays one."""
        for line in printable(text).splitlines():
            name = re.match(r"\S+ +", line)
            margin = " " * min(name.end() if name else 0, self.width // 2)
            whole = not _has_width(self.stream)
            width = max(self.width, len(line)) if whole else self.width
            for part in textwrap.wrap(line, width, subsequent_indent=margin, break_on_hyphens=False):
                self._write(part)

    def step(self, number: int, text: str) -> None:
        self.line()
        self.line(f"[{number}/5] {text}")

    def good(self, text: str, indent: int = 2) -> None:
        self._marked("✓", GREEN, text, indent)

    def bad(self, text: str, indent: int = 2) -> None:
        self._marked("✗", RED, text, indent)

    def note(self, text: str, indent: int = 4) -> None:
        self.line(f"{' ' * indent}({text})")

    def warning(self, warning: ProfileWarning) -> None:
        self._marked("!", YELLOW, warning.message, 2)


class QuietConsole(Console):
    """For `--quiet`: the answer once it is whole, in plain text; on standard error what must be known."""

    @contextlib.contextmanager
    def after(self, first: Callable[[], None]) -> Iterator[None]:
        yield  # that answer still lacks the latency

    def line(self, text: str = "") -> None:
        pass

    def table(self, *args: object, **kwargs: object) -> None:
        pass

    @property
    def _frames(self) -> bool:
        return False

    def _marked(self, mark: str, colour: str, text: str, indent: int) -> None:
        if mark != "✓":
            complain(f"{mark} {text}")
