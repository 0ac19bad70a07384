"""One process that is a rank of many: torch's `fake` process group, and its engines on tensors without data.

The engines themselves run (DDP's reducer, ZeroRedundancyOptimizer, `fully_shard`), so that what they allocate is what
is seen. Collectives do nothing here: they would change values, and there are none.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

META = torch.device("meta")
FSDP = "torch.distributed.fsdp._fully_shard"
# Its modules that ask for a device's streams.
WITH_HANDLES = ("_fsdp_param_group", "_fsdp_collectives", "_fsdp_state")


class RanksError(RuntimeError):
    """A rank cannot be predicted here; one line for the user."""


@contextmanager
def fake_rank(size: int, rank: int = 0) -> Iterator[None]:
    """While it is entered this process is rank `rank` of `size`, and engines take tensors on the meta device.

    Raises RanksError where the process has a group of its own already.
    """
    if dist.is_initialized():
        raise RanksError("a process of a running group cannot predict another group's memory")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # Registers every collective for tensors without data.
    importlib.import_module("torch.distributed._tools.fake_collectives")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        with ExitStack() as stack:
            for change in (*_of_ddp(), *_of_fsdp()):
                stack.enter_context(change)
            stack.enter_context(warnings.catch_warnings())
            # Of values that would be wrong: there are none.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module")
            yield
    finally:
        dist.destroy_process_group()


def _of_ddp() -> list[Any]:
    """DDP compares shapes between ranks by their values; and it asks a collective's future for the bucket."""
    module = "torch.nn.parallel.distributed"
    make = DistributedDataParallel.__init__

    def init(self: DistributedDataParallel, network: nn.Module, *args: Any, **kwargs: Any) -> None:
        make(self, network, *args, **kwargs)
        if next(network.parameters()).is_meta:
            dist._register_comm_hook(self.reducer, None, _bucket_as_it_is)  # past a check of annotations

    return [
        mock.patch(f"{module}._verify_param_shape_across_processes", return_value=True),
        mock.patch.object(DistributedDataParallel, "__init__", init),
    ]


def _bucket_as_it_is(_: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """What DDP does by itself, but for a future that holds the bucket, which the fake group's does not."""
    dist.all_reduce(bucket.buffer())
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _of_fsdp() -> list[Any]:
    """FSDP2 on a mesh of CPUs, which has no streams, makes its tensors on the meta device."""
    parts = [mock.patch(f"{FSDP}.{part}._get_device_handle", return_value=torch.cpu) for part in WITH_HANDLES]
    group = importlib.import_module(f"{FSDP}._fsdp_param_group").FSDPParamGroup
    return [
        *parts,
        mock.patch(f"{FSDP}._fully_shard._get_device_from_mesh", return_value=META),
        mock.patch.object(group, "_validate_no_meta_params", return_value=None),
    ]


@contextmanager
def told_of_buffers(enter: Callable[[str | None], Any]) -> Iterator[None]:
    """Calls `enter("communication")` where an engine is about to make a buffer, and gives the category before back."""
    groups = importlib.import_module(f"{FSDP}._fsdp_param_group")
    collectives = importlib.import_module(f"{FSDP}._fsdp_collectives")

    def during(owner: Any, name: str) -> Any:
        function = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = enter("communication")
            try:
                return function(*args, **kwargs)
            finally:
                enter(before)

        return mock.patch.object(owner, name, wrapped)

    copy_in = collectives.foreach_reduce_scatter_copy_in

    def copied_in(*args: Any, **kwargs: Any) -> Any:
        result = copy_in(*args, **kwargs)
        enter(None)  # what comes next is the sharded gradient
        return result

    with ExitStack() as stack:
        for owner, name in (
            (groups.FSDPParamGroup, "unshard"),
            (groups.FSDPParamGroup, "wait_for_unshard"),
            (groups, "foreach_reduce"),
            (DistributedDataParallel, "_pre_forward"),
        ):
            stack.enter_context(during(owner, name))
        stack.enter_context(mock.patch.object(collectives, "foreach_reduce_scatter_copy_in", copied_in))
        yield


# The streams that FSDP2 makes for each network, in its order.
STREAMS = ("all_gather_copy_in", "all_gather", "reduce_scatter", "all_reduce")


class _Handle:
    """What FSDP2 takes for torch.cuda: streams have names, and entering one is told of."""

    def __init__(self, enter: Callable[[str | None], Any], networks: Iterator[int]) -> None:
        self._enter, self._networks = enter, networks
        self._names: list[str] | None = None

    def Stream(self, priority: int = 0) -> Any:  # noqa: N802 - torch's name
        if self._names is None:
            network = next(self._networks)
            self._names = [name if network == 1 else f"{name} {network}" for name in STREAMS]
        made: Any = torch.cpu.Stream()
        made.name = self._names.pop(0)
        return made

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before = self._enter(getattr(stream, "name", None))
        try:
            yield
        finally:
            self._enter(before)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


@contextmanager
def streams_of_fsdp(enter: Callable[[str | None], Any]) -> Iterator[None]:
    """Calls `enter` with the stream that FSDP2 computes on next, None for that of the network itself.

    CUDA's allocator hands out memory again on the stream that it was made on alone.
    """
    networks = itertools.count(1)
    with ExitStack() as stack:
        for module in WITH_HANDLES:
            replaced = mock.patch(
                f"{FSDP}.{module}._get_device_handle", side_effect=lambda _: _Handle(enter, networks)
            )
            stack.enter_context(replaced)
        yield
