"""What a training step keeps in the host's memory in place of the device's, and how many bytes that moves.

A tensor without data (meta, where a trace stands for a device) has a copy on the host that no trace sees, and a step
on a CPU has one in the same memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

# What is smaller stays on the device: a copy takes as long as one of some pages.
LEAST_MOVED_BYTES = 4096


@dataclass
class Moved:
    """Bytes that went over the bus, since the process began."""

    to_host_bytes: int = 0
    to_device_bytes: int = 0

    def read(self) -> tuple[int, int]:
        """(to the host, to the device)."""
        return self.to_host_bytes, self.to_device_bytes


MOVED = Moved()


@contextmanager
def on_the_host() -> Iterator[None]:
    """What is made and changed meanwhile is the host's: traces of the device do not look."""
    with _disable_current_modes(), torch.no_grad():  # type: ignore[no-untyped-call]
        yield


def empty_on_host(like: Tensor) -> Tensor:
    """Without values, of the tensor's shape, strides and type; pinned where a CUDA device copies from it."""
    device = "meta" if like.device.type == "meta" else "cpu"
    return torch.empty_like(like, device=device, pin_memory=like.device.type == "cuda")


def copy_to_host(tensor: Tensor) -> Tensor:
    """A copy that is the host's."""
    with on_the_host():
        kept = empty_on_host(tensor.detach())
    return write_to_host(kept, tensor)


def write_to_host(kept: Tensor, tensor: Tensor) -> Tensor:
    """Writes a tensor of the device over what the host keeps of it; returns that."""
    with on_the_host():
        kept.copy_(tensor)
    MOVED.to_host_bytes += tensor.nbytes
    return kept


def copy_to_device(kept: Tensor, device: torch.device) -> Tensor:
    """A copy on the device of what the host keeps."""
    made = torch.empty_strided(kept.shape, kept.stride(), dtype=kept.dtype, device=device)
    write_to_device(made, kept)
    return made


def write_to_device(tensor: Tensor, kept: Tensor) -> None:
    """Writes what the host keeps over a tensor of the device."""
    with on_the_host():
        tensor.copy_(kept, non_blocking=True)
    MOVED.to_device_bytes += kept.nbytes


@dataclass(frozen=True)
class _OnHost:
    kept: Tensor
    device: torch.device


def saved_on_host(module: nn.Module, inputs: tuple[Tensor, ...]) -> torch.autograd.graph.saved_tensors_hooks:
    """While it is entered, what autograd saves for the backward pass goes to the host, and comes back one by one.

    torch's `save_on_cpu` moves weights too, which stay on the device all the same. Here the network's own tensors, its
    inputs, and what is small stay where they are.
    """
    device = next(module.parameters()).device
    stays = {_storage(tensor) for tensor in (*module.parameters(), *module.buffers(), *inputs)}

    def pack(tensor: Tensor) -> Tensor | _OnHost:
        small = tensor.untyped_storage().nbytes() < LEAST_MOVED_BYTES
        if small or tensor.device != device or _storage(tensor) in stays:
            return tensor
        return _OnHost(copy_to_host(tensor), tensor.device)

    def unpack(packed: Tensor | _OnHost) -> Tensor:
        return copy_to_device(packed.kept, packed.device) if isinstance(packed, _OnHost) else packed

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class StatesOnHost(torch.optim.Optimizer):
    """Brings the states of one parameter at a time to the device, updates it there, and takes them back.

    Each update is the optimizer's own, on the device: only where its states wait is another place. The groups and the
    state dict are the optimizer's, so that checkpoints go on with and without.
    """

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        """inner: without states as yet."""
        self.inner = inner
        super().__init__(inner.param_groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As of every optimizer."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for number, group in enumerate(self.param_groups):
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(number, parameter)
        return loss

    def _update(self, number: int, parameter: Tensor) -> None:
        kept = self.state[parameter]
        brought = {
            name: copy_to_device(value, parameter.device) if _moves(value) else value
            for name, value in kept.items()
        }
        self.inner.state = defaultdict(dict, {parameter: brought} if brought else {})
        self.inner.param_groups = [
            {**group, "params": [parameter] if place == number else []}
            for place, group in enumerate(self.param_groups)
        ]
        del brought
        self.inner.step()
        made = self.inner.state.pop(parameter)
        for name, value in made.items():
            if not _moves(value):
                kept[name] = value
            elif name in kept:
                write_to_host(kept[name], value)
            else:
                kept[name] = copy_to_host(value)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Groups as torch loads them; states stay on the host."""
        super().load_state_dict({**state_dict, "state": {}})
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, moments in state_dict["state"].items():
            parameter = parameters[number]
            self.state[parameter] = {
                name: _as_kept(value, parameter) if _moves(value) else value
                for name, value in moments.items()
            }


def _moves(value: Any) -> bool:
    """Counters of steps have no axes, and stay where the optimizer has them."""
    return isinstance(value, Tensor) and value.dim() > 0


def _as_kept(value: Tensor, parameter: Tensor) -> Tensor:
    with on_the_host():
        pinned = parameter.device.type == "cuda"
        kept = torch.empty_like(value, device="cpu", dtype=parameter.dtype, pin_memory=pinned)
        return kept.copy_(value)
