"""The report on the terminal: the five numbered steps that users of this script know.

Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from swinmr_profiling.configs.writing.standard_streams import complain, printable
from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    CrossCheck,
)
from swinmr_profiling.profiler.record.blocks.batch import (
    Batch,
    FailedBatch,
    Memory,
    PerceptualMetric,
    Timing,
)
from swinmr_profiling.profiler.record.blocks.run_description import RunConfig
from swinmr_profiling.profiler.record.private_record import relative_path
from swinmr_profiling.profiler.record.reconstruction_cost import GUIDED
from swinmr_profiling.profiler.record.units import MIB, figure
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.layout import LEAST_PANEL_WIDTH, panel_lines, table_lines
from swinmr_profiling.program import in_this_program

WIDTH = 80
LEAST_WIDTH = 40
MOST_WIDTH = 120
GREEN, RED, YELLOW, RESET = "\033[32m", "\033[31m", "\033[33m", "\033[0m"
# A broken pipe, a hung-up terminal.
NOBODY_READS = (errno.EPIPE, errno.EIO)


def takes_colour(stream: TextIO) -> bool:
    """Whether marks may be coloured: a terminal that can, and a user who has not set NO_COLOR (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


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
        # Python would complain once more while closing the stream at exit.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self.stream.fileno())
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
    """Says what went wrong and what must be known, on standard error, and nothing else (`--quiet`)."""

    def _write(self, text: str) -> None:
        pass

    def line(self, text: str = "") -> None:
        pass

    def _marked(self, mark: str, colour: str, text: str, indent: int) -> None:
        if mark != "✓":
            complain(f"{mark} {text}")


def milliseconds(timing: Timing) -> str:
    """Mean and deviation, or the number of runs where one run has no deviation."""
    if timing.std_ms is None:
        return f"{figure(timing.mean_ms)} ms (n={timing.num_runs})"
    return f"{figure(timing.mean_ms)} ± {figure(timing.std_ms)} ms (n={timing.num_runs})"


def memory_name(memory: Memory) -> str:
    """Short label of what a memory figure is."""
    return "GPU memory" if "CUDA" in memory.kind else "Process memory (RSS)"


def print_configuration(console: Console, config: RunConfig) -> None:
    console.title("MODEL PROFILING")
    console.line()
    console.line("Configuration:")
    console.line(f"  - Config file: {relative_path(config.config_file)}")
    console.line(f"  - Model: {config.model}")
    console.line(f"  - Image size: {config.image_size}")
    console.line(f"  - Device: {config.device}")
    console.line(f"  - Precision: {config.precision}")
    console.line(f"  - Batch sizes: {config.batch_sizes}")


def print_parameters(console: Console, architecture: Architecture) -> None:
    console.good(f"Total parameters: {architecture.total_parameters:,}")
    console.good(f"Trainable parameters: {architecture.trainable_parameters:,}")
    console.good(f"Model size: {figure(architecture.model_size_mb)} MB")
    if architecture.buffer_bytes:
        elements, size = architecture.buffer_elements, architecture.buffer_bytes / MIB
        console.good(f"Buffers: {elements:,} elements, {figure(size)} MB (not parameters)")
    for name, count in architecture.parameters_by_module.items():
        if count:
            console.line(f"      {name}: {count:,}")


def print_reconstruction(console: Console, architecture: Architecture) -> None:
    """What a denoiser's reconstruction is made of, beside the one call above; nothing for other networks."""
    block = architecture.reconstruction
    if block is None:
        return
    guided = f" x 2 (guidance {block.guidance:g})" if block.calls_per_step == 2 else ""
    made_of = f"{block.sampling_steps} steps of {block.sampler}{guided}, {block.denoiser_calls} calls"
    cost = ""
    if block.gmacs is not None and block.gflops is not None:
        cost = f": {figure(block.gmacs)} GMACs, {figure(block.gflops)} GFLOPs"
    console.good(f"One reconstruction: {made_of}{cost}")
    if guided:
        console.note(GUIDED)
    if block.samples_per_slice > 1:
        console.note(f"test.py makes {block.samples_per_slice} of them for each slice")


def print_counters(console: Console, checks: Sequence[CrossCheck], *, in_full: bool = False) -> None:
    """What fvcore and thop say; in_full, and in a verbose report: what their difference from ours is made of."""
    for check in checks:
        name = check.counter
        if check.figure is None:
            console.bad(f"{name} gives no figure: {check.status}, {check.reason}")
            continue
        shape = " x ".join(map(str, check.input_shapes[0] if check.input_shapes else ()))
        exact = "" if not check.inexact else ", inexact"
        console.good(f"{name} at {shape}{exact}: {check.figure:,.0f}, ours {check.ours:,}")
        if check.from_earlier_run:
            console.note("asked in an earlier run: same network, code and versions; --no-cache asks anew", 6)
        if not (console.verbose or in_full):
            if check.agrees and check.parts:
                console.note("every multiply-add of the difference is explained: --verbose", 6)
            continue
        console.line(f"      {check.convention}")
        for part in check.parts:
            console.line(f"      {part.macs:+,.0f} {part.operator}: {part.why}")
        if check.agrees:
            console.line("      apart from that they agree to the unit")


def print_single_image(console: Console, block: Batch) -> None:
    if isinstance(block, FailedBatch):
        console.bad(f"{block.error}: {block.detail}")
        return
    timing, memory = block.timing, block.memory
    console.good(f"Mean time: {milliseconds(timing)}")
    console.good(f"Median time: {figure(timing.median_ms)} ms")
    console.good(f"Min/Max: {figure(timing.min_ms)} / {figure(timing.max_ms)} ms")
    console.good(f"{memory_name(memory)} (peak): {figure(memory.peak_mb)} MB")
    print_notes(console, timing, indent=4)


def print_batch(console: Console, block: Batch) -> None:
    if isinstance(block, FailedBatch):
        console.bad(f"{block.error}: {block.detail}", indent=4)
        return
    timing, memory = block.timing, block.memory
    console.good(f"Inference time: {milliseconds(timing)}", indent=4)
    console.good(f"Throughput: {figure(timing.images_per_second)} images/sec", indent=4)
    console.good(f"{memory_name(memory)}: {figure(memory.peak_mb)} MB (peak)", indent=4)
    # A resumed profile of an earlier version knows of no noise.
    noise = ""
    if memory.activation_within_noise and memory.noise_bytes is not None:
        noise = f" (within the noise of {figure(memory.noise_bytes / MIB)} MB)"
    console.good(f"Activation memory: {figure(memory.activation_mb)} MB{noise}", indent=4)
    if memory.peak_reserved_mb is not None:
        console.good(f"Reserved by the allocator: {figure(memory.peak_reserved_mb)} MB (peak)", indent=4)
    print_notes(console, timing, indent=6)


def print_notes(console: Console, timing: Timing, indent: int) -> None:
    """In how many processes a size was measured, where there were several, and what else must be known."""
    if timing.num_processes > 1:
        runs = " + ".join(map(str, timing.runs_by_process or ()))
        console.note(f"{timing.num_processes} processes, {runs} runs", indent)
    for note in timing.notes:
        console.note(note, indent)


def print_perceptual_metric(console: Console, block: PerceptualMetric) -> None:
    console.good(f"Parameters: {block.total_parameters:,}", indent=4)
    console.good(f"MACs: {block.macs:,}", indent=4)
    console.good(f"Time: {milliseconds(block.timing)}", indent=4)
