"""The training recommendation on the terminal: the answer per GPU, its reason, the levers.

Formats what the blocks hold and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swinmr_profiling.profiler.allocator.fit_at_limit import FitAtLimit
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import (
    BudgetBlock,
    Lever,
    TrainingRecommendation,
    TrainingTime,
)
from swinmr_profiling.profiler.record.prediction_intervals import interval_of
from swinmr_profiling.profiler.record.units import GIB, gib
from swinmr_profiling.profiler.reports.console.terminal import LEAST_PANEL_WIDTH, Console
from swinmr_profiling.profiler.reports.views.words import shortened

# What `rests_on.layers` of a setting says.
PEAK_WORDS = {
    "workspace": "a convolution's workspace",
    "attention": "attention",
    "convolution": "convolutions without a workspace",
    "other": "plain products",
}
UNVERIFIED = "predicted, not yet verified on a GPU"
LONGEST_NAME = 40


def print_training_recommendation(
    console: Console, memory_model: MemoryModel | None, recommendation: Sequence[TrainingRecommendation]
) -> None:
    """Prints `recommendation.training` of a profile; `memory_model` is its block, None where none was predicted."""
    if not recommendation:
        return
    console.heading("Training batch size:")
    for entry in recommendation:
        print_entry(console, entry, memory_model)
    print_levers(console, recommendation)
    if memory_model is not None:
        print_assumptions(console, memory_model)


def print_beside_answer(
    console: Console, memory_model: MemoryModel | None, recommendation: Sequence[TrainingRecommendation]
) -> None:
    """What the answer's row of a card does not say: why there is no batch, what lies beyond it, the levers."""
    if console.verbose:
        print_training_recommendation(console, memory_model, recommendation)
        return
    if memory_model is not None:
        for text in memory_model.config_setting.assumptions:
            console.line(f"  Rests on: {text}.")
    for entry in recommendation:
        if entry.batch_size is None or entry.fits_slower is not None:
            print_entry(console, entry, memory_model)
    # Of the config's own setting alone the answer has said it.
    if any(len(entry.levers) > 1 for entry in recommendation):
        print_levers(console, recommendation)


def print_entry(console: Console, entry: TrainingRecommendation, memory_model: MemoryModel | None) -> None:
    """One card: the answer in five lines, and why where there is none or the report is verbose."""
    budget = entry.budget
    console.heading(f"  {budget.name}: {_budget_text(budget, in_full=console.verbose)}")
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
        needs = "unknown" if entry.needed_bytes is None else gib(entry.needed_bytes)
        # Of several devices the table of strategies has it, wider by what only they have.
        predicted = entry.source != "measured" and entry.devices == 1
        if memory_model is not None and entry.needed_bytes is not None and predicted:
            low, high = interval_of(memory_model.config_setting, "process", entry.needed_bytes)
            needs += f" ({low / GIB:,.2f} to {high / GIB:,.2f})"
        console.line(f"      needs {needs}; largest batch: {entry.largest_batch}")
    slower = entry.fits_slower
    if slower is not None:
        fit = FitAtLimit(True, slower.flushes, slower.slower_convolutions, 0)
        console.line(f"      beyond it: batch {slower.batch_size} {fit.words}; not recommended")
    console.line(f"      setting: {setting_text(entry)}")
    if console.verbose or entry.batch_size is None or entry.source != "predicted":
        console.line(f"      reason: {entry.reason}")
    if entry.time is not None:
        _print_time(console, entry.time)


def _budget_text(budget: BudgetBlock, *, in_full: bool) -> str:
    parts = [f"{gib(budget.total_bytes)} in all"]
    others = gib(budget.reserved_elsewhere_bytes)
    if others != gib(0):
        parts.append(f"{others} taken by others")
    parts.append(f"{budget.headroom_share * 100:g} % headroom")
    usable = f"{gib(budget.usable_bytes)} usable"
    libraries = f"of which context {gib(budget.context_bytes)}, workspaces {gib(budget.workspace_bytes)}"
    return f"{', '.join(parts)}: {usable}{f' ({libraries})' if in_full else ''}"


def _print_time(console: Console, time: TrainingTime) -> None:
    step = f"{time.optimizer_step_ms:,.1f} ms an optimizer step"
    console.line(f"      time: {step}, {_duration(time.seconds_per_100000_steps)} per 100,000 steps")
    if time.seconds_per_epoch is not None:
        samples = f"{time.training_samples:,} samples"
        console.line(f"      epoch of {samples}: {_duration(time.seconds_per_epoch)}")


def print_levers(console: Console, recommendation: Sequence[TrainingRecommendation]) -> None:
    """One row per setting, one column per GPU: the largest batch."""
    columns = [entry for entry in recommendation if entry.levers]
    if not columns:
        return
    console.heading("Predicted largest batch per device (* the config's own setting, ~ extrapolated):")
    names, cards = ["precision", "checkpoint", "patch"], [short_name(entry.budget.name) for entry in columns]
    cells = [[_cell(entry.levers[number]) for entry in columns] for number in range(len(columns[0].levers))]
    settings = [
        [own.precision + ("*" if own.is_config else ""), own.checkpointing, patch_text(own)]
        for own in columns[0].levers
    ]
    if console.width < LEAST_PANEL_WIDTH:
        names, settings = ["setting"], [[" ".join(setting)] for setting in settings]
    rows = [[*setting, *row] for setting, row in zip(settings, cells, strict=True)]
    console.table([*names, *cards], rows, names=len(names), indent=2)
    console.line()


def _cell(lever: Lever) -> str:
    if lever.largest_batch is None:
        return "none"
    return f"{'~' if lever.source == 'extrapolated' else ''}{lever.largest_batch}"


def print_assumptions(console: Console, memory_model: MemoryModel) -> None:
    """Of what the prediction is; in a verbose report also how sure it is, and what it takes for granted."""
    version = memory_model.torch_version
    console.line(f"  Prediction for torch {version} and {memory_model.optimizer}: {UNVERIFIED}.")
    if not console.verbose:
        return
    for line in interval_lines(memory_model):
        console.line(f"  {line}")
    if memory_model.assumptions:
        console.line(f"  Assumes: {'; '.join(memory_model.assumptions)}.")


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


def short_name(name: str) -> str:
    """A card's name where there is little room."""
    name = name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return shortened(name, LONGEST_NAME)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.1f} s"
    return f"{seconds / 60:,.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
