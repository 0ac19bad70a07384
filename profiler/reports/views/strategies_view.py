"""The table of strategies in words, where a profile has one."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock, StrategyOnCard
from swinmr_profiling.profiler.record.units import GIB

MIB = 2**20


def strategy_rows(blocks: Sequence[StrategyBlock] | None) -> tuple[tuple[str, ...], ...]:
    """Header and a row for each card and strategy; () where none was asked for."""
    if not blocks:
        return ()
    header = ("GPUs", "strategy", "per device", "global", "needs GiB", "interval")
    rows = [
        (f"{block.cards[number].card} x {block.devices}", block.strategy, *card_cells(block.cards[number]))
        for number in range(len(blocks[0].cards))
        for block in blocks
    ]
    return (header, *rows)


def kept_rows(blocks: Sequence[StrategyBlock] | None) -> tuple[tuple[str, ...], ...]:
    """Header and a row for each strategy: what no card changes, in MiB."""
    if not blocks:
        return ()
    rows = [
        (
            block.strategy,
            mib(block.kept_bytes),
            "-" if block.validation_bytes is None else mib(block.validation_bytes),
            mib(block.export_bytes),
            mib(block.ring_bytes),
        )
        for block in blocks
    ]
    return (("strategy", "between steps", "validation", "export", "sent a step"), *rows)


def card_cells(one: StrategyOnCard) -> tuple[str, ...]:
    """Batch per device, global batch, GiB and their interval."""
    if one.batch_size is None or one.needed_bytes is None or one.process_interval_bytes is None:
        return ("none", "-", "-", "-")
    low, high = one.process_interval_bytes
    return (
        str(one.batch_size),
        str(one.global_batch),
        f"{one.needed_bytes / GIB:,.2f}",
        f"{low / GIB:,.2f} to {high / GIB:,.2f}",
    )


def untested_words(blocks: Sequence[StrategyBlock] | None) -> str:
    """The rules that no GPU has confirmed, one line; "" where no strategy was asked for."""
    rules = dict.fromkeys(rule.partition(": ")[0] for block in blocks or () for rule in block.untested)
    return f"Untested on a GPU: {'; '.join(rules)}." if rules else ""


def sent_words(block: StrategyBlock) -> str:
    """The collectives of a step."""
    parts = (f"{kind.replace('_', '-')} of {mib(size)} MiB" for kind, size in block.sent.items())
    return ", ".join(parts) or "nothing"


def mib(number: int) -> str:
    """MiB to a decimal."""
    return f"{number / MIB:,.1f}"
