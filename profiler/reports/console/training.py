"""The training recommendation on the terminal, within 80 columns: the answer per GPU, its reason, the levers.

Formats what the blocks hold and computes nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from swinmr_profiling.profiler.allocator.fit_at_limit import FitAtLimit
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import (
    BudgetBlock,
    Lever,
    TrainingRecommendation,
    TrainingTime,
)
from swinmr_profiling.profiler.record.units import GIB
from swinmr_profiling.profiler.reports.console.terminal import WIDTH, Console
from swinmr_profiling.profiler.reports.views.words import shortened

# What `rests_on.layers` of a setting says.
PEAK_WORDS = {
    "workspace": "a convolution's workspace",
    "attention": "attention",
    "convolution": "convolutions without a workspace",
    "other": "plain products",
}
UNVERIFIED = "predicted, not yet verified on a GPU"
# Of the setting in the table of levers, and of a card's name at least and at most.
SETTING_COLUMNS, NAME_COLUMNS, LONGEST_NAME = 34, 13, 40


def print_training_recommendation(
    console: Console, memory_model: MemoryModel | None, recommendation: Sequence[TrainingRecommendation]
) -> None:
    """Prints `recommendation.training` of a profile; `memory_model` is its block, None where none was predicted."""
    if not recommendation:
        return
    console.line()
    console.line("Training batch size:")
    for entry in recommendation:
        _print_entry(console, entry)
    if any(entry.levers for entry in recommendation):
        _print_levers(console, recommendation)
    if memory_model is not None:
        _print_assumptions(console, memory_model)


def _print_entry(console: Console, entry: TrainingRecommendation) -> None:
    budget = entry.budget
    console.line()
    _wrapped(console, f"{budget.name}: {_budget_text(budget)}", indent=2)
    if entry.batch_size is None:
        console.bad("no batch size can be recommended", indent=4)
    else:
        label = "measured" if entry.source == "measured" else entry.source
        checked = "has run" if entry.verified else "not verified"
        console.good(f"batch {entry.batch_size} per device ({label}, {checked})", indent=4)
        console.line(
            f"      global batch {entry.global_batch}: {entry.batch_size} per device x "
            f"{entry.accumulate} accumulated x {entry.devices} device(s)"
        )
        console.line(f"      needs {_gib(entry.needed_bytes)}; largest batch: {entry.largest_batch}")
    slower = entry.fits_slower
    if slower is not None:
        fit = FitAtLimit(True, slower.flushes, slower.slower_convolutions, 0)
        _wrapped(console, f"beyond it: batch {slower.batch_size} {fit.words}; not recommended", indent=6)
    _wrapped(console, f"setting: {setting_text(entry)}", indent=6)
    _wrapped(console, f"reason: {entry.reason}", indent=6)
    if entry.time is not None:
        _print_time(console, entry.time)


def _budget_text(budget: BudgetBlock) -> str:
    parts = [f"{_gib(budget.total_bytes)} in all"]
    others = _gib(budget.reserved_elsewhere_bytes)
    if others != _gib(0):
        parts.append(f"{others} taken by others")
    parts.append(f"{budget.headroom_share * 100:g} % headroom")
    usable = f"{_gib(budget.usable_bytes)} usable"
    libraries = f"of which context {_gib(budget.context_bytes)}, workspaces {_gib(budget.workspace_bytes)}"
    return f"{', '.join(parts)}: {usable} ({libraries})"


def _print_time(console: Console, time: TrainingTime) -> None:
    step = f"{time.optimizer_step_ms:,.1f} ms an optimizer step"
    console.line(f"      time: {step}, {_duration(time.seconds_per_100000_steps)} per 100,000 steps")
    if time.seconds_per_epoch is not None:
        samples = f"{time.training_samples:,} samples"
        console.line(f"      epoch of {samples}: {_duration(time.seconds_per_epoch)}")


def _print_levers(console: Console, recommendation: Sequence[TrainingRecommendation]) -> None:
    """One row per setting, one column per GPU: the largest batch."""
    console.line()
    console.line("Predicted largest batch per device (* the config's own setting, ~ extrapolated):")
    columns = [entry for entry in recommendation if entry.levers]
    # "10571.8MiB GPU" is whole or it is another size.
    wide = max(NAME_COLUMNS, *(len(_short(entry.budget.name)) for entry in columns))
    per_table = max(1, (WIDTH - SETTING_COLUMNS) // (wide + 1))
    for start in range(0, len(columns), per_table):
        part = columns[start : start + per_table]
        names = "".join(f" {_short(entry.budget.name):>{wide}}" for entry in part)
        console.line(f"  {'precision':<10}{'checkpoint':<11}{'patch':<11}{names}".rstrip())
        for row, own in enumerate(part[0].levers):
            mark = "*" if own.is_config else " "
            text = f"  {own.precision + mark:<10}{own.checkpointing:<11}{patch_text(own):<11}"
            cells = (f" {_cell(entry.levers[row]):>{wide}}" for entry in part)
            console.line(text + "".join(cells))
        console.line()


def _cell(lever: Lever) -> str:
    if lever.largest_batch is None:
        return "none"
    return f"{'~' if lever.source == 'extrapolated' else ''}{lever.largest_batch}"


def _print_assumptions(console: Console, memory_model: MemoryModel) -> None:
    version = memory_model.torch_version
    _wrapped(console, f"Prediction for torch {version} and {memory_model.optimizer}: {UNVERIFIED}.", indent=2)
    for line in interval_lines(memory_model):
        _wrapped(console, line, indent=2)
    if memory_model.assumptions:
        _wrapped(console, f"Assumes: {'; '.join(memory_model.assumptions)}.", indent=2)


def interval_lines(memory_model: MemoryModel) -> list[str]:
    """How far the prediction may be off for this network, why, and which rule at its peak no GPU has confirmed."""
    own = next(setting for setting in memory_model.settings if setting.is_config)
    basis = own.rests_on
    if basis is None:
        if memory_model.interval_shares is None:
            return []
        return [f"Intervals of the prediction: {_shares(dict(memory_model.interval_shares))}."]
    shares = _shares({name: basis.shares[name] for name in ("allocated", "reserved")})
    tried = basis.evidence
    if tried is None:
        tried = "how many GPUs lie inside is not known"
        if basis.coverage is not None:
            share = f"{basis.coverage * 100:.0f} %"
            tried = f"{share} of public GPU records of inference (allocated bytes) lie inside theirs"
    found = [f"Interval, from what the peak rests on ({PEAK_WORDS[basis.layers]}): {shares}; {tried}."]
    if basis.untested:
        found.append(f"Untested on a GPU at this peak: {'; '.join(basis.untested)}.")
    return found


def _shares(shares: Mapping[str, Sequence[float]]) -> str:
    return ", ".join(
        f"{quantity} bytes {low * 100:+.3g} % to {high * 100:+.3g} %"
        for quantity, (low, high) in shares.items()
    )


def setting_text(setting: TrainingRecommendation | Lever) -> str:
    """ "fp32, checkpointing none, patch 96x96"."""
    return f"{setting.precision}, checkpointing {setting.checkpointing}, patch {patch_text(setting)}"


def patch_text(setting: TrainingRecommendation | Lever) -> str:
    return "x".join(map(str, setting.patch_size)) if setting.patch_size else "whole"


def _short(name: str) -> str:
    name = name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return shortened(name, LONGEST_NAME)


def _gib(number: int | None) -> str:
    return "unknown" if number is None else f"{number / GIB:,.2f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.1f} s"
    return f"{seconds / 60:,.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _wrapped(console: Console, text: str, indent: int) -> None:
    margin = " " * indent
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=margin, subsequent_indent=margin + "  ", break_on_hyphens=False
    )
    for line in lines:
        console.line(line)
