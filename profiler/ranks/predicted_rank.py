"""The memory that training takes on one of several GPUs, for any batch size, and what is sent between them.

`RankWorker` answers in the process that predicts ranks: as that of profiler/prediction/server.py, which can be one of
many, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pydantic import Field

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.configs.sections.strategy import Strategy
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.example_data import validation_shape
from swinmr_profiling.profiler.prediction.predict import memory_setting
from swinmr_profiling.profiler.prediction.server import PredictionWorker
from swinmr_profiling.profiler.prediction.settings import TrainingSetting
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.prediction.trace_family import TraceFamily
from swinmr_profiling.profiler.ranks.fake_ranks import META, fake_rank
from swinmr_profiling.profiler.ranks.traced_rank import Kind, RankStep, trace_rank
from swinmr_profiling.profiler.record.blocks.figures import Block, Bytes, PositiveCount
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.training.errors import StrategyError
from swinmr_profiling.training.strategies.engine import TESTED_TORCH, build_engine

# At most as many as were tried; beyond, shards of most parameters are empty.
MAX_DEVICES = 64
MIB = 2**20
# What NCCL takes outside torch's allocator is a matter of its channels, the link and the version. By hand: from none to
# what its buffers come to with many channels.
NCCL_BYTES = 1024 * MIB
UNTESTED_RULES = (
    "buffers that a stream still holds when the next is made: one more of the largest is in the interval",
    f"NCCL's own memory, outside the allocator: up to {NCCL_BYTES // MIB} MiB are in the interval of a process",
    "gathers that are made ahead on CUDA's streams: as on a CPU, one unit ahead in the backward pass",
    "memory of FSDP2's streams: no other stream takes it again, and each has as much as its own buffers reach",
)
UNTESTED_OFFLOAD = "shards on the host: their copies on the card are there until the gather has taken them"


class RankPrediction(Block):
    """One strategy between `devices` GPUs; all bytes are of the rank that needs most.

    Attributes:
        setting: as an entry of `memory_model.settings`, buckets and shards in it.
        sent: of a step, bytes of the tensors in each kind of collective, and over the bus to a host that has the
            shards. ring_bytes: that the rank sends in rings.
        held_bytes: the largest buffer of communication, which a stream may hold once more.
        kept_bytes: parameters, states, average and buckets between two steps. export_bytes: what is alive on rank 0
            at most while a whole checkpoint is put together.
        untested: rules that no GPU has confirmed.
    """

    strategy: Strategy
    devices: PositiveCount
    rank: int = Field(ge=0)
    setting: MemorySetting
    sent: dict[Kind, Bytes]
    ring_bytes: Bytes
    held_bytes: Bytes
    kept_bytes: Bytes
    export_bytes: Bytes
    untested: list[str]

    def interval_bytes(self, low_high: Sequence[int], *, process: bool) -> tuple[int, int]:
        """The interval of one process alone, widened by what only several have."""
        low, high = low_high
        return low, high + self.held_bytes + (NCCL_BYTES if process else 0)


def predict_rank(
    built: BuiltModel,
    config: ExperimentConfig,
    setting: TrainingSetting,
    devices: int,
    *,
    asked: Sequence[int] = (),
    on_progress: Callable[[], None] = lambda: None,
) -> RankPrediction:
    """The rank that needs most, of `devices`, in the config's strategy.

    built, config: in this very setting. Raises StrategyError for what does not go together or was never tried, and
    whatever the network raises where it cannot be traced.
    """
    if devices > MAX_DEVICES:
        raise StrategyError(f"{devices} devices: at most {MAX_DEVICES} were tried")
    rank = largest_rank(built, config, devices)
    steps: list[RankStep] = []

    def trace(batch_size: int) -> Trace:
        steps.append(trace_rank(built, config, batch_size, devices, rank=rank))
        on_progress()
        return steps[-1].trace

    entry = memory_setting(
        TraceFamily(trace, check=setting.is_config),
        setting,
        asked,
        fingerprint=memory_fingerprint(config),
        trained_bytes=sum(p.nbytes for p in built.module.parameters() if p.requires_grad),
        validated_shape=validation_shape(built, config),
        on_progress=on_progress,
    )
    first = steps[0]
    sent: Counter[Kind] = Counter()
    for one in first.sent:
        sent[one.kind] += one.whole_bytes
    buffers = first.trace.sizes[first.trace.categories == CATEGORIES.index("communication")]
    kept = kept_bytes(first.trace)
    return RankPrediction(
        strategy=config.training.strategy,
        devices=devices,
        rank=rank,
        # The buckets are in the trace: nothing is to be added.
        setting=entry.model_copy(update={"ddp_bucket_bytes": 0}),
        sent=dict(sent),
        ring_bytes=sum(one.ring_bytes for one in first.sent),
        held_bytes=int(buffers.max(initial=0)),
        kept_bytes=kept,
        export_bytes=kept + gathered_bytes(built, config, devices),
        untested=[
            *UNTESTED_RULES,
            *([UNTESTED_OFFLOAD] if build_engine(config, devices, META).offloads else []),
            *untested_torch(),
        ],
    )


def untested_torch() -> list[str]:
    """A line where this version of torch is none of those whose engines were held against real runs."""
    if torch.__version__.startswith(TESTED_TORCH):
        return []
    return [
        f"torch {torch.__version__}: its engines were not held against real runs ({', '.join(TESTED_TORCH)} were)"
    ]


def largest_rank(built: BuiltModel, config: ExperimentConfig, devices: int) -> int:
    """The rank that holds most: the first under DDP and FSDP2 (the last shards are the small ones).

    Under ZeRO-1 the one with the most bytes of parameters to keep states of, as ZeroRedundancyOptimizer deals them out.
    """
    engine = build_engine(config, devices, META)
    if config.training.strategy != "zero1" or devices == 1:
        return 0
    module = copy_to(built.module, ())[0]
    with fake_rank(devices):
        optimizer = engine.optimizer(module.parameters(), config.training.optimizer)
        parts = optimizer._partition_parameters()  # type: ignore[attr-defined]
    held = [sum(p.nbytes for group in groups for p in group["params"]) for groups in parts]
    return held.index(max(held))


def kept_bytes(trace: Trace) -> int:
    """Bytes alive after the last step, before validation."""
    return int(trace.live_bytes()[trace.step_starts[-1] - 1])


def gathered_bytes(built: BuiltModel, config: ExperimentConfig, devices: int) -> int:
    """What putting a whole checkpoint together takes beside the shards: one tensor at a time, on each rank.

    Nothing where tensors are whole already, or on the host. The largest tensor is gathered in padded chunks, of which
    it is then a view.
    """
    if config.training.strategy != "fsdp" or devices == 1 or config.training.fsdp.offload_to_cpu:
        return 0
    rows = [
        (parameter, parameter.shape[0] if parameter.dim() else 1) for parameter in built.module.parameters()
    ]
    padded = (parameter.nbytes // max(n, 1) * (-(-n // devices) * devices) for parameter, n in rows)
    return max(padded, default=0)


class RankWorker(PredictionWorker):
    """Holds the config between requests."""

    def do_predict_rank(
        self, strategy: Strategy, devices: int, batch_sizes: list[int], **setting: Any
    ) -> RankPrediction:
        """One strategy between some devices, in one setting."""
        typed, config, built = self._in_setting(**setting)
        raw = config.model_dump(mode="json")
        raw["training"]["strategy"] = strategy
        try:
            return predict_rank(
                built,
                config_from_dict(raw),
                typed,
                devices,
                asked=batch_sizes,
                on_progress=lambda: self.send("progress"),
            )
        except StrategyError as error:
            raise ModelError(str(error)) from error
