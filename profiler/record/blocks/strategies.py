"""What each of several GPUs trains with under a strategy: DDP, ZeRO-1, FSDP2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from swinmr_profiling.profiler.record.blocks.figures import Block, Bytes, PositiveCount


class StrategyOnCard(Block):
    """The largest batch per device on one GPU; null where none fits.

    needed_bytes, process_interval_bytes: of the rank that needs most, on its card. The interval has NCCL's memory and a
    buffer that a stream still holds in it.
    """

    card: str
    batch_size: PositiveCount | None
    global_batch: PositiveCount | None
    needed_bytes: Bytes | None
    process_interval_bytes: list[Bytes] | None = Field(min_length=2, max_length=2)


class StrategyBlock(Block):
    """One strategy between `devices` GPUs; all bytes are of the rank that needs most.

    kept_bytes: between two steps. validation_bytes: a validation batch, null where none is run. export_bytes: alive on
    rank 0 while a whole checkpoint is put together. sent: of a step, bytes of the tensors in each kind of collective.
    ring_bytes: that a rank sends in rings. untested: rules that no GPU has confirmed.
    """

    source: Literal["predicted"]
    strategy: Literal["ddp", "zero1", "fsdp"]
    devices: PositiveCount
    cards: list[StrategyOnCard]
    kept_bytes: Bytes
    validation_bytes: Bytes | None
    export_bytes: Bytes
    sent: dict[str, Bytes]
    ring_bytes: Bytes
    untested: list[str]
