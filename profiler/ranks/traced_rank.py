"""The training step of one rank, traced without data: its storages as ever, and what it sends: the collectives of a
step, their bytes, and the link that they say they go over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._guards import active_fake_mode
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.stand_in import all_entered
from swinmr_profiling.profiler.prediction.trace.storage_trace import (
    ON_STREAM,
    StorageTrace,
    Trace,
    tensors_in_moving_order,
)
from swinmr_profiling.profiler.prediction.trace.traced_step import TRACED_STEPS, trace_training
from swinmr_profiling.profiler.ranks.fake_ranks import (
    META,
    HostStorages,
    buffers_told,
    fake_rank,
    goes_to_host,
    offload_told,
    streams_told,
)
from swinmr_profiling.training.errors import StrategyError
from swinmr_profiling.training.strategies.engine import build_engine

# DDP puts its buckets in another order after the first step; from the third on every step is like the one before.
RANK_STEPS = TRACED_STEPS + 1
# The last two go over the bus between a card and its host, not between ranks.
Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "host_to_device", "device_to_host"]
SENT_IN_RING: dict[Kind, int] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}
# The operators of a process group, and where among their arguments the whole tensor is.
OPERATORS: dict[str, tuple[Kind, int]] = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    # Of sharded tensors: the norm of all gradients.
    "_c10d_functional::all_reduce": ("all_reduce", 0),
}
# What engines do beside, of a few bytes: to agree, to wait, to hand on what may still be under way.
BESIDE = ("c10d::barrier", "_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd")
aten = torch.ops.aten


@dataclass(frozen=True)
class Sent:
    """One collective, or copy over the bus: the bytes of the whole tensor, and between how many."""

    kind: Kind
    whole_bytes: int
    size: int

    @property
    def ring_bytes(self) -> int:
        """Bytes that each rank sends in a ring, which is the least there is (Patarasuk and Yuan 2009): an all-reduce
        2 (n - 1) / n of the tensor, a gather or a scatter half of that, a broadcast all of it at most once. Of a copy
        over the bus none.
        """
        return SENT_IN_RING.get(self.kind, 0) * self.whole_bytes * (self.size - 1) // self.size


def collective_of(function: Any, args: Any) -> Sent | None:
    """The collective that an operator is; None for all others. Raises StrategyError for one that no engine uses."""
    name = function._schema.name
    found = OPERATORS.get(name)
    if found is None:
        if name.startswith(("c10d::", "_c10d_functional")) and name not in BESIDE:
            raise StrategyError(
                f"{name}: collectives of a network's own, tensor and pipeline parallel are not predicted"
            )
        return None
    kind, position = found
    whole = args[position]
    tensors = [whole] if isinstance(whole, Tensor) else list(whole)
    return Sent(kind, sum(t.nbytes for t in tensors), dist.get_world_size())


class RankTrace(StorageTrace):
    """Knows sharded tensors, storages that are let go by resizing, and collectives.

    FSDP2 frees a gathered parameter by `storage.resize_(0)`, and gives it memory again in the same way: no operator
    and no weak reference tells of it.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        # Of each step: what this rank sends in it.
        self.sent: list[list[Sent]] = [[]]
        self._host = HostStorages()
        # Of CUDA, where an engine's buffers have memory of their own; None: the one that computes.
        self.stream: str | None = None

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # comes again with the shards that it is made of
        if active_fake_mode() is not None:  # DTensor asks for shapes: nothing is made
            return function(*args, **(kwargs or {}))
        if function is aten.copy_.default and args[1].is_meta and not args[0].is_meta:
            return args[0]  # DDP brings its order of buckets back from a collective, with the values it had
        if self._host and goes_to_host(function, args, kwargs) and not self._host.has_any_of(args):
            self.sent[-1].append(Sent("device_to_host", args[0].nbytes, 1))
            return self._computed_on_host(lambda: torch.empty_like(args[0]))
        collective = collective_of(function, args)
        if collective is not None:
            self.sent[-1].append(collective)
        if not self._host or not self._host.has_any_of((args, kwargs)):
            return super().__torch_dispatch__(function, types, args, kwargs)
        return self._computed_on_host(
            lambda: super(RankTrace, self).__torch_dispatch__(function, types, args, kwargs)
        )

    def start_step(self) -> None:
        super().start_step()
        self.sent.append([])

    def to_host(self, tensor: Tensor) -> None:
        """The tensor's memory is the host's from now on."""
        known = self._live.get(id(tensor.untyped_storage()))
        if known is not None:
            self._release(id(tensor.untyped_storage()), known[0])
        self._host.add(tensor)

    def on_device(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor of the host."""
        self.sent[-1].append(Sent("host_to_device", tensor.nbytes, 1))
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device_type)

    def _computed_on_host(self, compute: Callable[[], Any]) -> Any:
        looking, self.is_looking = self.is_looking, False
        try:
            result = compute()
        finally:
            self.is_looking = looking
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and made.is_meta:
                self._host.add(made)
        return result

    def _allocate(self, storage: torch.UntypedStorage, operator: str) -> None:
        super()._allocate(storage, operator if self.stream is None else f"{operator}{ON_STREAM}{self.stream}")

    def resized(self, storage: torch.UntypedStorage) -> None:
        """After a storage has another size: its old memory is gone, and the new one is here."""
        if storage.device.type != self.device_type:
            return
        known = self._live.get(id(storage))
        if known is not None:
            if storage.nbytes() == self._made[known[0]][0]:
                return
            self._release(id(storage), known[0])
        self._allocate(storage, "storage.resize_")

    def __enter__(self) -> RankTrace:
        self._watching = _watching(self)
        self._watching.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self._watching.__exit__(*exc_info)


def _watching(trace: RankTrace) -> AbstractContextManager[None]:
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        trace.resized(storage)
        return result

    return all_entered(
        (
            mock.patch.object(torch.UntypedStorage, "resize_", resized, create=True),
            buffers_told(trace),
            offload_told(trace.to_host, trace.on_device),
            streams_told(trace),
        )
    )


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

    def make_trace(module: nn.Module, loss: nn.Module, *given: Any, **options: Any) -> RankTrace:
        made.append(RankTrace(*given, **options))
        return made[-1]

    def on_unit(unit: nn.Module) -> None:
        for tensor in tensors_in_moving_order(unit):
            if not isinstance(tensor, DTensor):  # of a unit within, sharded already
                made[-1].enter(tensor, "module.to(device)")

    engine = build_engine(config, size, META, on_unit=on_unit)
    with fake_rank(size, rank):
        try:
            found = trace_training(
                built,
                config,
                batch_size,
                as_on_cuda=as_on_cuda,
                validation=validation,
                steps=RANK_STEPS,
                engine=engine,
                make_trace=make_trace,
            )
        except RuntimeError as error:
            if "mixed torch.Tensor and DTensor" not in str(error):
                raise
            raise StrategyError(
                "fsdp: the network uses parameters of a unit outside the unit's forward pass, where they are shards"
            ) from error
    return RankStep(found, tuple(made[-1].sent[RANK_STEPS]))
