"""One process that is a rank of many: torch's `fake` process group, and its engines on tensors without data.

The engines themselves run (DDP's reducer, ZeroRedundancyOptimizer, `fully_shard`), so that what they allocate is what
is seen. Collectives do nothing here: they would change values, and there are none. Under FSDP2's CPU offload shards,
their gradients and states are the host's, whatever device they say.
"""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from swinmr_profiling.models.stand_in import all_entered

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
    import_module("torch.distributed._tools.fake_collectives")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        with all_entered((*_of_ddp(), *_of_fsdp(), warnings.catch_warnings())):
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
    group = import_module(f"{FSDP}._fsdp_param_group").FSDPParamGroup
    return [
        *parts,
        mock.patch(f"{FSDP}._fully_shard._get_device_from_mesh", return_value=META),
        mock.patch.object(group, "_validate_no_meta_params", return_value=None),
    ]


def buffers_told(trace: Any) -> AbstractContextManager[None]:
    """What an engine makes while it makes a buffer has the trace's category "communication"."""
    groups, collectives = (
        import_module(f"{FSDP}.{part}") for part in ("_fsdp_param_group", "_fsdp_collectives")
    )

    def during(owner: Any, name: str) -> Any:
        function = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with mock.patch.object(trace, "category", "communication"):
                return function(*args, **kwargs)

        return mock.patch.object(owner, name, wrapped)

    copy_in = collectives.foreach_reduce_scatter_copy_in

    def copied_in(*args: Any, **kwargs: Any) -> Any:
        result = copy_in(*args, **kwargs)
        trace.category = None  # what comes next is the sharded gradient
        return result

    return all_entered(
        (
            during(groups.FSDPParamGroup, "unshard"),
            during(groups.FSDPParamGroup, "wait_for_unshard"),
            during(groups, "foreach_reduce"),
            during(DistributedDataParallel, "_pre_forward"),
            mock.patch.object(collectives, "foreach_reduce_scatter_copy_in", copied_in),
        )
    )


# The streams that FSDP2 makes for each network, in its order.
STREAMS = ("all_gather_copy_in", "all_gather", "reduce_scatter", "all_reduce")


class _Handle:
    """What FSDP2 takes for torch.cuda: streams have names, and the trace is told of the one that is entered."""

    def __init__(self, trace: Any, networks: Iterator[int]) -> None:
        self._trace, self._networks = trace, networks
        self._names: list[str] | None = None

    def Stream(self, priority: int = 0) -> Any:  # noqa: N802 - torch's name
        if self._names is None:
            network = next(self._networks)
            self._names = [name if network == 1 else f"{name} {network}" for name in STREAMS]
        made: Any = torch.cpu.Stream()
        made.name = self._names.pop(0)
        return made

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        return mock.patch.object(self._trace, "stream", getattr(stream, "name", None))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


def streams_told(trace: Any) -> AbstractContextManager[None]:
    """The trace's `stream` is the one that FSDP2 computes on, None for that of the network itself.

    CUDA's allocator hands out memory again on the stream that it was made on alone.
    """
    networks = itertools.count(1)
    return all_entered(
        mock.patch(f"{FSDP}.{module}._get_device_handle", side_effect=lambda _: _Handle(trace, networks))
        for module in WITH_HANDLES
    )


class HostStorages:
    """Storages on the meta device that stand for memory of the host; results of operators on them do, too."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self._known:
            self._known[key] = weakref.ref(storage, lambda _: self._known.pop(key, None))

    def has_any_of(self, arguments: Any) -> bool:
        """Whether a tensor among nested arguments is on the host."""
        return any(
            id(leaf.untyped_storage()) in self._known
            for leaf in tree_leaves(arguments)
            if isinstance(leaf, Tensor) and leaf.is_meta
        )


def offload_told(
    to_host: Callable[[Tensor], None], on_device: Callable[[Tensor], Tensor]
) -> AbstractContextManager[None]:
    """Tells of each shard that goes to the host as it is made, and asks for its copy on the device for each gather.

    On the meta device FSDP2 leaves both out, because `to` does nothing there.
    """
    kind = import_module(f"{FSDP}._fsdp_param").FSDPParam
    group = import_module(f"{FSDP}._fsdp_param_group").FSDPParamGroup
    initialise, inputs = kind._init_sharded_param, kind.all_gather_inputs.fget

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        if self.offload_to_cpu:
            to_host(self._sharded_param_data)

    def copied(self: Any) -> list[Tensor]:
        if not self.offload_to_cpu:
            return inputs(self)  # type: ignore[no-any-return]
        copy = on_device(self._sharded_param_data)
        dtype = self.param_dtype
        return [copy if dtype is None or dtype == copy.dtype else copy.to(dtype)]

    return all_entered(
        (
            mock.patch.object(kind, "_init_sharded_param", initialised),
            mock.patch.object(kind, "all_gather_inputs", property(copied)),
            mock.patch.object(group, "_validate_cpu_offload_params", return_value=None),
        )
    )


def goes_to_host(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator copies a tensor without data to the host."""
    if function is not torch.ops.aten._to_copy.default or not args[0].is_meta:
        return False
    device = (kwargs or {}).get("device")
    return device is not None and torch.device(device).type == "cpu"
