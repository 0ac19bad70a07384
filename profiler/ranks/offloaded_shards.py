"""FSDP2's CPU offload without data: shards, their gradients and states are the host's, whatever device they say."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


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


@contextmanager
def watching_offload(
    to_host: Callable[[Tensor], None], on_device: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Tells of each shard that goes to the host as it is made, and asks for its copy on the device for each gather.

    On the meta device FSDP2 leaves both out, because `to` does nothing there.
    """
    kind = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param").FSDPParam
    group = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group").FSDPParamGroup
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

    with ExitStack() as stack:
        for change in (
            mock.patch.object(kind, "_init_sharded_param", initialised),
            mock.patch.object(kind, "all_gather_inputs", property(copied)),
            mock.patch.object(group, "_validate_cpu_offload_params", return_value=None),
        ):
            stack.enter_context(change)
        yield


def goes_to_host(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator copies a tensor without data to the host."""
    if function is not torch.ops.aten._to_copy.default or not args[0].is_meta:
        return False
    device = (kwargs or {}).get("device")
    return device is not None and torch.device(device).type == "cpu"
