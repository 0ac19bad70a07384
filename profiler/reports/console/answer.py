"""What the user came for, in at most twelve lines: size, multiply-adds, latency, the training batch of each card.

Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.batch import FailedBatch
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock
from swinmr_profiling.profiler.record.prediction_intervals import interval_of
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.units import GIB, figure
from swinmr_profiling.profiler.reports.console.layout import LEAST_PANEL_WIDTH, table_lines
from swinmr_profiling.profiler.reports.console.steps import milliseconds
from swinmr_profiling.profiler.reports.console.terminal import Console, wrapped
from swinmr_profiling.profiler.reports.console.training import UNVERIFIED, setting_text, short_name
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
        for line in _labelled(label, text, width)
    ]
    lines += training_lines(profile, width)
    console.line()
    console.panel(title, lines)


def _labelled(label: str, text: str, width: int) -> list[str]:
    return wrapped(f"{label:<{LABEL_COLUMNS}}{text}", width)


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
    advice = profile.recommendation
    entries: Sequence[TrainingRecommendation] = () if advice is None else advice.training
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
        shown_setting = f"{own.precision}, {patch(own)}" if narrow else setting_text(own)
        lines += wrapped(shown_setting if narrow else f"{shown_setting}{checked}", width)
    return lines


def patch(entry: TrainingRecommendation) -> str:
    return setting_text(entry).rpartition(", ")[2]


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
