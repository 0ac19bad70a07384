"""The table of strategies on the terminal: what each of several GPUs trains with, keeps and sends."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.views.strategies_view import (
    card_cells,
    kept_rows,
    sent_words,
    untested_words,
)

SENT = (
    "Sent: by each rank, in rings, over the link between the cards (NVLink or PCIe, or the network between machines). "
    "How long that takes is not predicted."
)


def print_strategies(console: Console, blocks: Sequence[StrategyBlock]) -> None:
    """One table per GPU, then what is kept and sent, which no card changes."""
    for number, on_card in enumerate(blocks[0].cards):
        console.heading(f"{on_card.card} x {blocks[0].devices}, predicted, not verified on a GPU:")
        cells = [[block.strategy, *card_cells(block.cards[number])] for block in blocks]
        console.table(["strategy", "per device", "global", "needs GiB", "interval"], cells, names=1, indent=2)
    console.heading("Of the rank that needs most, whatever the batch (MiB):")
    header, *rows = kept_rows(blocks)
    console.table(list(header), [list(row) for row in rows], names=1, indent=2)
    for block in blocks:
        console.line(f"  {block.strategy}: {sent_words(block)} a step")
    console.line(f"  {SENT}")
    if console.verbose:
        for rule in dict.fromkeys(rule for block in blocks for rule in block.untested):
            console.line(f"  Untested on a GPU: {rule}.")
    elif words := untested_words(blocks):
        console.line(f"  {words}")
    console.line()
