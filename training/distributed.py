"""One process or several (torchrun): who this one is, and what all of them agree on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from swinmr_profiling.input_error import InputError


class DistributedError(InputError):
    """The processes cannot work together as asked; one line for the user."""


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process: all stop together, or the others would wait for ever."""
        return self.counts(flag)[0] > 0

    def counts(self, *flags: bool) -> list[int]:
        """In how many processes each flag is set."""
        if self.size == 1:
            return [int(flag) for flag in flags]
        counted = torch.tensor([int(flag) for flag in flags], device=self.device)
        dist.all_reduce(counted)
        return counted.tolist()

    def means(self, values: dict[str, float]) -> dict[str, float]:
        """The mean over processes of each value, in every process; all give the same names."""
        if self.size == 1:
            return values
        summed = torch.tensor(
            list(values.values()), dtype=torch.float64 if self.device.type == "cpu" else None
        )
        summed = summed.to(self.device)
        dist.all_reduce(summed)
        return dict(zip(values, (summed / self.size).tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, by rank, in every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def first(self, value: Any) -> Any:
        """What the first process, by rank, has that is not None; None where none has."""
        return next((one for one in self.gather(value) if one is not None), None)


@contextmanager
def open_world(device_name: str, *, from_host: bool = False) -> Iterator[World]:
    """The world that torchrun's environment describes, or a world of one.

    device_name: "auto", "cpu", "cuda" or "cuda:N" (with several processes each takes the GPU of its local rank).
    gloo on CPUs, nccl on GPUs. from_host: tensors of the host are sent, too (shards that are offloaded).
    Raises DistributedError for GPUs that are not there.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    automatic = "cuda" if available else "cpu"
    device = torch.device(automatic if device_name == "auto" else device_name)
    if device.type == "cuda":
        index = local_rank if size > 1 or device.index is None else device.index
        if index >= available:
            raise DistributedError(
                f"--device {device_name}: GPU {index} is not there ({available} available); start fewer processes "
                "or use --device cpu"
            )
        device = torch.device("cuda", index)
        torch.cuda.set_device(device)
    if size == 1:
        yield World(0, 1, device)
        return
    on_gpus = "cpu:gloo,cuda:nccl" if from_host else "nccl"
    dist.init_process_group(on_gpus if device.type == "cuda" else "gloo")
    try:
        yield World(rank, size, device)
    finally:
        dist.destroy_process_group()
