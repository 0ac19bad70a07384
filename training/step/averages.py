"""The moving average of a network's weights, on the device or in the host's memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from swinmr_profiling.training.step.host_memory import MOVED, copy_to_host, on_the_host, write_to_device


def build_average(module: nn.Module, decay: float, *, on_host: bool) -> AveragedModel:
    """The average of a network that lies on its device."""
    with on_the_host() if on_host else nullcontext():
        averaged = module_on_host(module) if on_host else module
        ema = AveragedModel(averaged, multi_avg_fn=get_ema_multi_avg_fn(decay))
    ema.requires_grad_(False)
    # It begins as the initial weights, as in SwinMR; of 0 updates torch would make the first step's weights.
    ema.n_averaged.fill_(1)
    return ema


def update_average(ema: AveragedModel, module: nn.Module, *, on_host: bool) -> None:
    """After a step."""
    if not on_host:
        ema.update_parameters(module)
        return
    with on_the_host():
        ema.update_parameters(module)
    MOVED.to_host_bytes += sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def module_on_host(module: nn.Module) -> nn.Module:
    """A copy of a network whose parameters and buffers are the host's."""
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        kept = copy_to_host(tensor)
        if isinstance(tensor, nn.Parameter):
            kept = nn.Parameter(kept, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = kept
    with on_the_host():
        return copy.deepcopy(module, memo)


@contextmanager
def exchanged(module: nn.Module, kept: nn.Module) -> Iterator[None]:
    """Meanwhile a network has the values of its copy on the host, and the host keeps its own."""
    tensors, others = ((*each.parameters(), *each.buffers()) for each in (module, kept))
    own = [copy_to_host(tensor) for tensor in tensors]
    try:
        for tensor, other in zip(tensors, others, strict=True):
            write_to_device(tensor, other)
        yield
    finally:
        for tensor, mine in zip(tensors, own, strict=True):
            write_to_device(tensor, mine)
