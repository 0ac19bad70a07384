"""A plan on the terminal; computes nothing."""

from __future__ import annotations

from swinmr_profiling.profiler.plan.plan_file import TrainingPlan, described
from swinmr_profiling.profiler.record.units import GIB, figure
from swinmr_profiling.profiler.reports.console.terminal import Console

# More names than these are counted, unless --verbose asks for all.
SHOWN_NAMES = 6


def print_plan(console: Console, plan: TrainingPlan) -> None:
    """The table of settings, and the chosen one in words."""
    budget = plan.budget
    console.title(f"Training plan: batch {plan.global_batch} on {budget.name}")
    console.line(
        f"{budget.usable_bytes / GIB:,.2f} GiB of {budget.total_bytes / GIB:,.2f} usable "
        f"({budget.headroom_share:.0%} stays free); memory with workspaces and context"
    )
    console.line()
    rows = [
        [
            f"{number}{'*' if number == plan.chosen + 1 else ''}",
            f"{setting.micro_batch} x {setting.accumulate}",
            setting.precision,
            described(setting),
            "" if setting.patch_size is None else "x".join(map(str, setting.patch_size)),
            f"{setting.needed_bytes / GIB:,.2f}",
            figure(setting.recomputed_macs / 1e9),
            figure(setting.recomputed_bytes / GIB),
        ]
        for number, setting in enumerate(plan.settings, start=1)
    ]
    console.table(
        ["", "micro x acc.", "precision", "checkpointing", "patch", "GiB", "GMACs again", "GiB again"], rows
    )
    console.line()
    setting = plan.setting
    low, high = (edge / GIB for edge in setting.reserved_interval_bytes)
    word = "fits" if setting.fits else "is nearest, and does not fit"
    console.line(
        f"setting {plan.chosen + 1} {word}: PyTorch reserves {setting.reserved_bytes / GIB:,.2f} GiB "
        f"({low:,.2f} to {high:,.2f}), live {setting.live_bytes / GIB:,.2f}"
    )
    if setting.modules:
        names = setting.modules if console.verbose else setting.modules[:SHOWN_NAMES]
        rest = len(setting.modules) - len(names)
        console.line(
            f"recomputed ({setting.chosen_by}): {', '.join(names)}{f' and {rest} more' if rest else ''}"
        )
    if setting.val_batch_size:
        console.line(f"validation in batches of {setting.val_batch_size}")
    for change in setting.changes:
        console.line(f"changes the result: {change}")
    for note in plan.notes:
        console.line(f"note: {note}")
