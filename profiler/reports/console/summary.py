"""The summary at the end of a report, in a few lines each, and the answer, in at most twelve lines.

The answer is what the user came for: size, multiply-adds, latency, the training batch of each card.
Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.architecture import Reconstruction
from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch, MeasuredBatch
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock
from swinmr_profiling.profiler.record.prediction_intervals import interval_of
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.units import GIB, figure
from swinmr_profiling.profiler.reports.console.steps import milliseconds
from swinmr_profiling.profiler.reports.console.terminal import (
    LEAST_PANEL_WIDTH,
    Console,
    table_lines,
    wrapped,
)
from swinmr_profiling.profiler.reports.console.training import (
    UNVERIFIED,
    patch_text,
    setting_text,
    short_name,
)
from swinmr_profiling.profiler.reports.views import words

# With three lines of figures, a heading, the setting and the frame: twelve lines.
MOST_CARDS, MOST_CARDS_NARROW = 4, 3
LABEL_COLUMNS = 12


def print_answer(
    console: Console, profile: Profile, *, latency_comes: bool = False, title: str = "ANSWER"
) -> None:
    """The panel. latency_comes: it is going to be measured, which is said in its place."""
    if profile.architecture is None:
        return
    width = console.panel_width
    narrow = width < LEAST_PANEL_WIDTH
    lines = [
        line
        for label, text in _figures(profile, narrow, latency_comes)
        for line in wrapped(f"{label:<{LABEL_COLUMNS}}{text}", width)
    ]
    lines += training_lines(profile, width)
    console.line()
    console.panel(title, lines)


def _figures(profile: Profile, narrow: bool, latency_comes: bool) -> list[tuple[str, str]]:
    architecture, single = profile.architecture, profile.single_image
    assert architecture is not None
    size = f"{architecture.total_parameters:,}"
    found = [("parameters", size if narrow else f"{size} ({figure(architecture.model_size_mb)} MB)")]
    if architecture.macs is None or architecture.flops is None:
        found.append(("MACs", "not counted"))
    else:
        letter, unit = words.unit_of(architecture.macs)
        of_flops, flops_unit = words.unit_of(architecture.flops)
        macs, flops = figure(architecture.macs / unit), figure(architecture.flops / flops_unit)
        shape = "" if narrow else f", one forward of {' x '.join(map(str, architecture.input_shape))}"
        found.append(("MACs", f"{macs} {letter} = {flops} {of_flops}FLOPs{shape}"))
    if isinstance(single, FailedBatch):
        found.append(("latency", single.error))
    elif single is not None:
        more = (
            ""
            if narrow
            else f", {figure(single.timing.images_per_second)} images/s on {profile.config.device}"
        )
        found.append(("latency", f"{milliseconds(single.timing)}{more}"))
    elif latency_comes:
        found.append(
            ("latency", "measured below" if narrow else "measured below, and in the answer at the end")
        )
    else:
        found.append(("latency", "not measured"))
    return found


def training_lines(profile: Profile, width: int) -> list[str]:
    """A row for each card, and in which setting; no line where nothing is recommended."""
    entries = profile.training_advice
    if not entries:
        return []
    narrow = width < LEAST_PANEL_WIDTH
    shown = entries[: MOST_CARDS_NARROW if narrow else MOST_CARDS]
    rows = [_row(entry, profile) for entry in shown]
    if narrow:
        lines = []
        for name, batch, needs, interval, source in rows:
            lines.append(f"{name}: batch {batch}")
            lines.append(f"  {needs}{f' ({interval})' if interval else ''}, {source}")
    else:
        lines = table_lines(["training on", "batch", "needs GiB", "interval", "source"], rows, width)
    if len(entries) > len(shown):
        lines.append(f"and {len(entries) - len(shown)} more cards: --verbose, the JSON")
    own = next((entry for entry in shown if entry.precision is not None), None)
    if own is not None:
        checked = "" if any(entry.verified for entry in shown) else f"; {UNVERIFIED}"
        whole = f"{setting_text(own)}{checked}"
        lines += wrapped(f"{own.precision}, patch {patch_text(own)}" if narrow else whole, width)
    return lines


def _row(entry: TrainingRecommendation, profile: Profile) -> list[str]:
    name = short_name(entry.budget.name)
    if entry.batch_size is None or entry.needed_bytes is None:
        failure = (entry.failure or "none").replace("_", " ")
        needs = "-" if entry.needed_bytes is None else _gib(entry.needed_bytes)
        return [name, failure if entry.batch_size is None else str(entry.batch_size), needs, "", entry.source]
    interval = ""
    if profile.memory_model is not None and entry.source != "measured":
        bounds = _of_several(entry, profile.strategies)
        low, high = bounds or interval_of(profile.memory_model.config_setting, "process", entry.needed_bytes)
        interval = f"{_gib(low)} to {_gib(high)}"
    source = "measured, has run" if entry.verified else entry.source
    return [name, str(entry.batch_size), _gib(entry.needed_bytes), interval, source]


def _of_several(
    entry: TrainingRecommendation, strategies: Sequence[StrategyBlock] | None
) -> list[int] | None:
    """The interval of one of several devices, as the table of strategies has it; None where it has none."""
    cards = strategies[0].cards if strategies and entry.devices > 1 else []
    same = [one for one in cards if (one.card, one.batch_size) == (entry.budget.name, entry.batch_size)]
    return same[0].process_interval_bytes if same else None


def _gib(number: int) -> str:
    return f"{number / GIB:,.2f}"


def print_summary(console: Console, profile: Profile, title: str = "ANSWER") -> None:
    """The summary: architecture, single image, a line per batch size, and the answer, now with the latency.

    A warning has been printed where it arose; here its code marks the line that it concerns.
    """
    console.line()
    console.title("PROFILING SUMMARY")
    architecture, single = profile.architecture, profile.single_image
    if architecture is not None:
        console.heading("Model Architecture:")
        parameters, size = architecture.total_parameters, architecture.model_size_mb
        console.line(f"  - Parameters: {parameters:,} ({figure(size)} MB)")
        if architecture.macs is not None and architecture.flops is not None:
            macs = words.in_unit(architecture.macs, "MACs")
            console.line(f"  - {words.in_unit(architecture.flops, 'FLOPs')} ({macs})")
        if architecture.reconstruction is not None:
            console.line(f"  - One reconstruction: {_reconstruction_line(architecture.reconstruction)}")
    if isinstance(single, MeasuredBatch):
        console.heading("Single Image Performance:")
        console.line(f"  - Inference time: {milliseconds(single.timing)}")
        console.line(f"  - Throughput: {figure(single.timing.images_per_second)} images/sec")
    if profile.batch_profiling:
        console.heading("Batch Size Recommendations:")
        for batch, block in sorted(profile.batch_profiling.items(), key=lambda item: int(item[0])):
            codes = [warning.code for warning in profile.warnings if warning.batch_size == int(batch)]
            console.line(f"  - Batch {batch}: {_summary_line(block, codes)}")
    advice = profile.inference_advice
    if advice is not None:
        console.line(f"  For inference: batch {advice.batch_size}, {advice.reason}.")
        console.line(f"  This is for {advice.purpose}.")
    print_answer(console, profile, title=title)


def _reconstruction_line(block: Reconstruction) -> str:
    parts = [f"{block.denoiser_calls} calls"]
    if block.gflops is not None:
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
