"""A plan on the terminal; computes nothing."""

from __future__ import annotations

from swinmr_profiling.profiler.plan.plan_file import TrainingPlan, recomputed
from swinmr_profiling.profiler.record.units import GIB, figure
from swinmr_profiling.profiler.reports.console.terminal import Console

# More names than these are counted, unless --verbose asks for all.
SHOWN_NAMES = 6
PLACES = {"ema": "ema", "activations": "act.", "optimizer_states": "states"}


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
            f"{setting.precision}{', nhwc' if setting.channels_last else ''}",
            recomputed(setting),
            "+".join(PLACES[name] for name in setting.on_host),
            "" if setting.patch_size is None else "x".join(map(str, setting.patch_size)),
            f"{setting.needed_bytes / GIB:,.2f}",
            figure(setting.recomputed_macs / 1e9),
            figure(setting.recomputed_bytes / GIB),
            figure((setting.to_host_bytes + setting.to_device_bytes) / GIB),
        ]
        for number, setting in enumerate(plan.settings, start=1)
    ]
    console.table(
        [
            "",
            "micro x acc.",
            "precision",
            "checkpointing",
            "on host",
            "patch",
            "GiB",
            "GMACs again",
            "GiB again",
            "GiB moved",
        ],
        rows,
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
    if setting.on_host:
        places = " and ".join(name.replace("_", " ") for name in setting.on_host)
        console.line(
            f"on the host: {places}; over the bus in each optimizer step {setting.to_host_bytes / GIB:,.2f} GiB there "
            f"and {setting.to_device_bytes / GIB:,.2f} back"
        )
    print_changes(console, plan)
    for note in plan.notes:
        console.line(f"note: {note}")


def print_changes(console: Console, plan: TrainingPlan) -> None:
    """What each setting changes in the result, the same words once."""
    said: dict[str, list[str]] = {}
    for number, setting in enumerate(plan.settings, start=1):
        for change in setting.changes or ["nothing but the order of sums"]:
            said.setdefault(change, []).append(str(number))
    for change, numbers in said.items():
        console.line(f"changes the result, {', '.join(numbers)}: {change}")
