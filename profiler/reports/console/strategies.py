"""The table of strategies on the terminal: what each of several GPUs trains with, keeps and sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.prediction_intervals import interval_of
from swinmr_profiling.profiler.record.units import GIB
from swinmr_profiling.profiler.reports.console.terminal import Console

MIB = 2**20


@dataclass(frozen=True)
class StrategyRow:
    """One strategy on the GPUs asked for.

    held_bytes, nccl_bytes: what widens the interval of a process upwards. recommendations: one per GPU.
    """

    strategy: str
    setting: MemorySetting
    recommendations: Sequence[TrainingRecommendation]
    kept_bytes: int
    export_bytes: int
    sent: Mapping[Any, int]
    ring_bytes: int
    held_bytes: int
    nccl_bytes: int
    untested: Sequence[str]


def print_strategies(console: Console, rows: Sequence[StrategyRow], devices: int) -> None:
    """One table per GPU, then what is kept and sent, which no card changes."""
    cards = [entry.budget.name for entry in rows[0].recommendations]
    for number, card in enumerate(cards):
        console.line()
        console.line(f"{card} x {devices}, predicted, not verified on a GPU:")
        cells = [[row.strategy, *_card_cells(row, row.recommendations[number])] for row in rows]
        console.table(["strategy", "per device", "global", "needs GiB", "interval"], cells, names=1, indent=2)
    console.line()
    console.line("Of the rank that needs most, whatever the batch (MiB):")
    cells = [
        [
            row.strategy,
            _mib(row.kept_bytes),
            "-" if row.setting.validation is None else _mib(row.setting.validation.allocated_bytes),
            _mib(row.export_bytes),
            _mib(row.ring_bytes),
        ]
        for row in rows
    ]
    console.table(
        ["strategy", "between steps", "validation", "export", "sent a step"], cells, names=1, indent=2
    )
    for row in rows:
        parts = ", ".join(f"{kind.replace('_', '-')} of {_mib(size)} MiB" for kind, size in row.sent.items())
        console.line(f"  {row.strategy}: {parts or 'nothing'} a step")
    console.line(
        "  Sent: by each rank, in rings, over the link between the cards (NVLink or PCIe, or the network between "
        "machines). How long that takes is not predicted."
    )
    if console.verbose:
        for rule in rows[0].untested:
            console.line(f"  Untested on a GPU: {rule}.")
    console.line()


def _card_cells(row: StrategyRow, entry: TrainingRecommendation) -> list[str]:
    if entry.batch_size is None or entry.needed_bytes is None:
        return ["none", "-", "-", "-"]
    low, high = interval_of(row.setting, "process", entry.needed_bytes)
    high += row.held_bytes + row.nccl_bytes
    return [
        str(entry.batch_size),
        str(entry.global_batch),
        f"{entry.needed_bytes / GIB:,.2f}",
        f"{low / GIB:,.2f} to {high / GIB:,.2f}",
    ]


def _mib(number: int) -> str:
    return f"{number / MIB:,.1f}"
