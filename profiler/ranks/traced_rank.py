"""The training step of one rank, traced without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace, tensors_in_moving_order
from swinmr_profiling.profiler.prediction.trace.traced_step import TRACED_STEPS, Spread, trace_training
from swinmr_profiling.profiler.ranks.fake_ranks import META, fake_rank
from swinmr_profiling.profiler.ranks.rank_trace import RankTrace
from swinmr_profiling.profiler.ranks.traffic import Sent
from swinmr_profiling.training.errors import StrategyError
from swinmr_profiling.training.strategies.engine import build_engine

# DDP puts its buckets in another order after the first step; from the third on every step is like the one before.
RANK_STEPS = TRACED_STEPS + 1


@dataclass(frozen=True)
class RankStep:
    """The trace of a rank, and the collectives of its last step."""

    trace: Trace
    sent: tuple[Sent, ...]


def trace_rank(
    built: BuiltModel,
    config: ExperimentConfig,
    batch_size: int,
    size: int,
    *,
    rank: int = 0,
    as_on_cuda: bool = True,
    validation: bool = True,
) -> RankStep:
    """Traces rank `rank` of `size` in the config's strategy, as `trace_training` traces one process alone.

    batch_size: samples of one micro-batch of this rank.
    Raises StrategyError for what does not go together, RanksError inside another group, and what the network raises.
    """
    made: list[RankTrace] = []

    def new_trace(device: str, *, as_on_cuda: bool, assumed: Mapping[str, Any]) -> RankTrace:
        made.append(RankTrace(device, as_on_cuda=as_on_cuda, assumed=assumed))
        return made[-1]

    def on_unit(unit: nn.Module) -> None:
        for tensor in tensors_in_moving_order(unit):
            if isinstance(tensor, DTensor):  # of a unit within, sharded already
                continue
            made[-1].enter(tensor, "module.to(device)")

    engine = build_engine(config, size, META, on_unit=on_unit)
    trace = partial(
        trace_training,
        built,
        config,
        batch_size,
        as_on_cuda=as_on_cuda,
        validation=validation,
        steps=RANK_STEPS,
        spread=Spread(
            new_trace,
            engine.shard,
            engine.optimizer,
            engine.wrap,
            is_moved_whole=not engine.shards_parameters,
        ),
    )
    with fake_rank(size, rank):
        try:
            found = trace()
        except RuntimeError as error:
            if "mixed torch.Tensor and DTensor" not in str(error):
                raise
            raise StrategyError(
                "fsdp: the network uses parameters of a unit outside the unit's forward pass, where they are shards"
            ) from error
    return RankStep(found, tuple(made[-1].sent[RANK_STEPS]))
