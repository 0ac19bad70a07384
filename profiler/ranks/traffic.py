"""What a rank sends: the collectives of a step, their bytes, and the link that they say they go over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch.distributed as dist
from torch import Tensor

from swinmr_profiling.training.errors import StrategyError

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


def ring_bytes(step: Iterable[Sent]) -> int:
    """Bytes that a rank sends in a step."""
    return sum(one.ring_bytes for one in step)
