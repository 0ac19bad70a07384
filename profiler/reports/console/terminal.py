"""The report on the terminal: the five numbered steps and the summary that users of this script know.

Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from swinmr_profiling.configs.writing.standard_streams import complain, printable
from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    CrossCheck,
    Reconstruction,
)
from swinmr_profiling.profiler.record.blocks.batch import (
    Batch,
    FailedBatch,
    MeasuredBatch,
    Memory,
    PerceptualMetric,
    Timing,
)
from swinmr_profiling.profiler.record.blocks.run_description import RunConfig
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.reconstruction_cost import GUIDED
from swinmr_profiling.profiler.record.units import MIB, figure
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.views import words

WIDTH = 80
LEAST_WIDTH = 40
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

    def __init__(self, stream: TextIO | None = None, width: int = WIDTH) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.width = width
        self.coloured = takes_colour(self.stream)
        self.failed = False  # part of the report was lost, on a full disk for example

    def line(self, text: str = "") -> None:
        for part in wrapped(printable(text), self.width):
            self._write(part)

    def _marked(self, mark: str, colour: str, text: str, indent: int) -> None:
        first, *rest = wrapped(printable(f"{' ' * indent}{mark} {text}"), self.width)
        if self.coloured:
            first = first.replace(mark, f"{colour}{mark}{RESET}", 1)
        for part in (first, *rest):
            self._write(part)

    def _write(self, text: str) -> None:
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
    console.line(f"  - Config file: {config.config_file}")
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


def print_counters(console: Console, checks: Sequence[CrossCheck]) -> None:
    """What fvcore and thop say, and what their difference from ours is made of."""
    for check in checks:
        name = check.counter
        if check.figure is None:
            console.bad(f"{name} gives no figure: {check.status}, {check.reason}")
            continue
        shape = " x ".join(map(str, check.input_shapes[0] if check.input_shapes else ()))
        exact = "" if not check.inexact else ", inexact"
        console.good(f"{name} at {shape}{exact}: {check.figure:,.0f}, ours {check.ours:,}")
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


def print_summary(console: Console, profile: Profile) -> None:
    """The summary: architecture, single image, a line per batch size, the recommendation.

    A warning has been printed where it arose; here its code marks the line that it concerns.
    """
    console.line()
    console.title("PROFILING SUMMARY")
    architecture, single = profile.architecture, profile.single_image
    if architecture is not None:
        console.line()
        console.line("Model Architecture:")
        parameters, size = architecture.total_parameters, architecture.model_size_mb
        console.line(f"  - Parameters: {parameters:,} ({figure(size)} MB)")
        if architecture.macs is not None and architecture.flops is not None:
            macs = words.in_unit(architecture.macs, "MACs")
            console.line(f"  - {words.in_unit(architecture.flops, 'FLOPs')} ({macs})")
        if architecture.reconstruction is not None:
            console.line(f"  - One reconstruction: {_reconstruction_line(architecture.reconstruction)}")
    if isinstance(single, MeasuredBatch):
        console.line()
        console.line("Single Image Performance:")
        console.line(f"  - Inference time: {milliseconds(single.timing)}")
        console.line(f"  - Throughput: {figure(single.timing.images_per_second)} images/sec")
    if profile.batch_profiling:
        console.line()
        console.line("Batch Size Recommendations:")
        for size, block in sorted(profile.batch_profiling.items(), key=lambda item: int(item[0])):
            codes = [warning.code for warning in profile.warnings if warning.batch_size == int(size)]
            console.line(f"  - Batch {size}: {_summary_line(block, codes)}")
    if profile.recommendation is not None and profile.recommendation.inference is not None:
        advice = profile.recommendation.inference
        console.line(f"  For inference: batch {advice.batch_size}, {advice.reason}.")
        console.line(f"  This is for {advice.purpose}.")


def _reconstruction_line(block: Reconstruction) -> str:
    parts = [f"{block.denoiser_calls} calls"]
    if block.gmacs is not None:
        parts.append(f"{figure(block.gflops)} GFLOPs")
    if block.latency_ms is not None:
        parts.append(f"about {figure(block.latency_ms / 1000)} s (calls x time of one image)")
    return ", ".join(parts)


def _summary_line(block: Batch, codes: list[str]) -> str:
    if isinstance(block, FailedBatch):
        return f"{block.error} ({block.detail})"
    timing, memory = block.timing, block.memory
    name = "GPU memory" if "CUDA" in memory.kind else "process memory"
    text = f"{figure(timing.images_per_second)} img/s, {memory.peak_mb:,.0f} MB {name}"
    return f"{text} (! {', '.join(codes)}: see above)" if codes else text
