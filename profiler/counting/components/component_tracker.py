"""Which of several networks is running: their calls as they come, in whatever order the program makes them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from swinmr_profiling.profiler.counting.module_tree import ModuleTracker


def component_of(path: str) -> str:
    """The network that a path of the tracker belongs to; "" for what ran outside all of them."""
    return path.partition(".")[0]


class ComponentTracker(ModuleTracker):
    """A ModuleTracker over several networks, by name. Nothing is registered on them.

    A call of a network is one of the network itself or, from outside it, of one of its children (``vae.decode`` calls
    the VAE's decoder, never the VAE's own forward).

    Attributes:
        calls: path of the module that was called from outside its network -> calls.
        first_shapes: that path -> shape of the first tensor of its last call.
        not_seen: network -> why what it does does not pass the dispatcher.
    """

    def __init__(self, networks: dict[str, nn.Module]) -> None:
        self.networks = networks
        self.calls: Counter[str] = Counter()
        self.first_shapes: dict[str, list[int]] = {}
        self.not_seen: dict[str, str] = {}
        super().__init__(nn.Module())
        for name, network in networks.items():
            try:
                self._index(network, name, (self.root,))
            except ValueError as error:  # an optimized script
                self.not_seen[name] = str(error)
            else:
                self.root._modules[name] = network

    def called(self, path: str, args: Any = (), kwargs: Any = None) -> None:
        """Notes a call that came from outside the network."""
        self.calls[path] += 1
        tensors = torch.utils._pytree.tree_leaves((args, kwargs))
        first = next((t for t in tensors if isinstance(t, torch.Tensor) and t.dim() > 1), None)
        if first is not None:
            self.first_shapes[path] = list(first.shape)

    def calls_of(self, name: str) -> int:
        """Calls of a network: those of its busiest module."""
        return max((n for path, n in self.calls.items() if component_of(path) == name), default=0)

    def in_component(self) -> bool:
        """Whether one of the networks is running in this thread."""
        return bool(component_of(self.running().path))

    def macs_of(self, name: str) -> Counter[str]:
        """MACs of a network by kind; "": outside all networks."""
        found: Counter[str] = Counter()
        for path, by_kind in self.own_macs.items():
            if component_of(path) == name:
                found.update(by_kind)
        return found

    @contextmanager
    def hooks_off(self) -> Iterator[None]:
        """Takes the hooks off for a while: compiled code would be compiled anew for them."""
        super().__exit__()
        try:
            yield
        finally:
            super().__enter__()

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        stack = self._stack
        caller = stack[-1].path
        try:
            super()._enter_module(module, args)
        except ValueError as error:
            # A script that no count can see into must not end the program that runs it.
            self.not_seen[type(module).__name__] = str(error)
            return
        path = stack[-1].path
        if path is not caller and path and component_of(path) != component_of(caller):
            self.called(path, args)
