"""The terminal that reports are written to: its width, its colours, its encoding, and that nobody may be reading."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TextIO

from rich.box import ROUNDED
from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from swinmr_profiling.configs.writing.standard_streams import NOBODY_READS, complain, leave_unread, printable
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.program import in_this_program

GAP = 2
# Below it a panel's border takes too much of a line.
LEAST_PANEL_WIDTH = 60
# What a column of names keeps where it has to fold.
LEAST_NAME_WIDTH = 12


def table_lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    names: int = 1,
    left: int = 0,
    indent: int = 0,
) -> list[str]:
    """The lines of a table, none wider than `width` unless one figure is.

    names: how many columns at the left are names: they fold where they must, and stand again before each part of a
    table that does not fit. left: columns that stand to the left, at least the names. The rest are figures.
    """
    width -= indent
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    lines: list[str] = []
    for columns in _parts(widths, width, names):
        if lines:
            lines.append("")
        table = Table(box=None, padding=(0, GAP // 2), pad_edge=False)
        for number in columns:
            justify: Literal["left", "right"] = "left" if number < max(names, left) else "right"
            table.add_column(
                Text(headings[number]), justify=justify, no_wrap=number >= names, overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(row[number]) for number in columns))
        lines += [f"{' ' * indent}{line}".rstrip() for line in _rendered(table, width)]
    return lines


def _parts(widths: Sequence[int], width: int, names: int) -> list[list[int]]:
    """Numbers of the columns of each part."""
    left = list(range(names))
    room = width - min(sum(widths[:names]) + GAP * names, max(width // 2, LEAST_NAME_WIDTH * names))
    parts: list[list[int]] = []
    taken = 0
    for number in range(names, len(widths)):
        needed = widths[number] + (GAP if taken else 0)
        if not parts or taken + needed > room:
            parts.append([*left])
            taken, needed = 0, widths[number]
        parts[-1].append(number)
        taken += needed
    return parts or [left]


def panel_lines(title: str, lines: Sequence[str], width: int) -> list[str]:
    """The lines in a frame, for a terminal that shows colours."""
    panel = Panel(Text("\n".join(lines)), title=title, title_align="left", box=ROUNDED, border_style="green")
    return _rendered(panel, width, coloured=True)


def _rendered(what: Table | Panel, width: int, *, coloured: bool = False) -> list[str]:
    stream = io.StringIO()
    console = RichConsole(
        file=stream,
        width=width,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(what)
    return stream.getvalue().splitlines()


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

    def heading(self, text: str) -> None:
        """A line apart from what stands before it."""
        self.line()
        self.line(text)

    def step(self, number: int, text: str) -> None:
        self.heading(f"[{number}/5] {text}")

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
