"""Rows of predicted beside measured bytes of a rank, as a file of JSON lines that a run which was cut goes on from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from swinmr_profiling.profiler.prediction.replay import live_by_category
from swinmr_profiling.profiler.ranks.compared_networks import NETWORKS, build_compared, compared_config
from swinmr_profiling.profiler.ranks.measured_rank import Cell, measure_ranks
from swinmr_profiling.profiler.ranks.predicted_rank import largest_rank
from swinmr_profiling.profiler.ranks.traced_rank import trace_rank
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint


class RankKey(BaseModel):
    """What a row is of. samples: of a rank. memory: fingerprint of the config."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    network: str
    ranks: int
    strategy: str
    samples: int
    memory: str
    torch: str


class RankRow(BaseModel):
    """One row. share: of activations and communication buffers in the predicted peak."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: RankKey
    rank: int
    predicted_bytes: int
    measured_bytes: int
    share: float
    gradient_bytes: int

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_bytes / self.measured_bytes

    def line(self) -> str:
        """As a terminal shows it."""
        return (
            f"{self.of.network:9} {self.of.ranks} ranks {self.of.strategy:12} predicted {self.predicted_bytes:>12,} "
            f"measured {self.measured_bytes:>12,} {self.ratio:.5f}  share {self.share:.2f}"
        )


def key_of(network: str, strategy: str, ranks: int) -> RankKey:
    """What the row of a comparison will be of, with this version of torch."""
    return RankKey(
        network=network,
        ranks=ranks,
        strategy=strategy,
        samples=NETWORKS[network][1],
        memory=memory_fingerprint(compared_config(network, strategy)),
        torch=torch.__version__.split("+")[0],
    )


def earlier_rows(file: Path) -> dict[RankKey, RankRow]:
    """The rows of a file, without what was cut off or is none; none of a file that is not there."""
    rows = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            row = RankRow.model_validate_json(line)
        except ValidationError:
            continue
        rows[row.of] = row
    return rows


def compared_rows(keys: Sequence[RankKey]) -> Iterator[RankRow]:
    """Predicts and measures each, those of one number of ranks in the same processes."""
    for ranks in sorted({key.ranks for key in keys}):
        chosen = [key for key in keys if key.ranks == ranks]
        cells = [
            Cell(build_compared, compared_config(key.network, key.strategy), key.samples) for key in chosen
        ]
        for key, cell, measured in zip(chosen, cells, measure_ranks(cells, ranks), strict=True):
            yield _row(key, cell, measured)


def _row(key: RankKey, cell: Cell, measured: Sequence[int]) -> RankRow:
    built = build_compared(cell.config)
    rank = largest_rank(built, cell.config, key.ranks)
    step = trace_rank(
        built, cell.config, cell.batch_size, key.ranks, rank=rank, as_on_cuda=False, validation=False
    )
    live = step.trace.live_bytes()
    start = step.trace.step_starts[0]
    event = start + int(live[start:].argmax())
    parts = live_by_category(step.trace, event)
    return RankRow(
        of=key,
        rank=rank,
        predicted_bytes=int(live[event]),
        measured_bytes=measured[rank],
        share=round((parts["saved_activations"] + parts["communication"]) / sum(parts.values()), 4),
        gradient_bytes=sum(p.nbytes for p in built.module.parameters() if p.requires_grad),
    )
