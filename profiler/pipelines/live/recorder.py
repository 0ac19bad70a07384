"""Watching a run of a live pipeline: which networks were called, with what, how often and for how long.

Forward hooks are put on every network and on its direct children (`vae.decode` never calls the VAE's own forward,
but its decoder's), and taken off again; a child's call counts only while its network's own forward is not running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from swinmr_profiling.profiler.pipelines.live.anatomy import module_device, networks_of

# Masks, token ids and times are kept with their values, for networks that read them.
LARGEST_KEPT_NUMEL = 65536


@dataclass
class RecordedCalls:
    """All calls of one module with arguments of the same shapes. `args`, `kwargs`: without data, but small integers."""

    path: str
    module: nn.Module
    args: tuple
    kwargs: dict[str, Any]
    count: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass
class RecordedRun:
    """One run: calls by module and shapes in the order they first came, and the wall time of all.

    `failures`: paths of modules whose arguments could not be recorded, and why.
    """

    pipe: Any
    calls: dict[tuple, RecordedCalls] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None

    def of_network(self, name: str) -> list[RecordedCalls]:
        """Calls of a network or of its children."""
        return [c for c in self.calls.values() if c.path == name or c.path.startswith(f"{name}.")]


@contextmanager
def recording(pipe: Any) -> Iterator[RecordedRun]:
    """Records what the pipeline's networks do while the block runs. Nothing is left behind on them."""
    run = RecordedRun(pipe)
    handles = []
    for name, network in networks_of(pipe).items():
        watcher = _Watcher(run, module_device(network))
        watched = [(name, network)] + [(f"{name}.{child}", m) for child, m in network.named_children()]
        for path, module in watched:
            handles.append(module.register_forward_pre_hook(watcher.before(path), with_kwargs=True))
            handles.append(module.register_forward_hook(watcher.after, with_kwargs=True, always_call=True))
    started = time.perf_counter()
    try:
        yield run
    finally:
        run.seconds = time.perf_counter() - started
        for handle in handles:
            handle.remove()


class _Watcher:
    """The hooks of one network; only the outermost call of its modules is recorded."""

    def __init__(self, run: RecordedRun, device: torch.device) -> None:
        self._run = run
        self._device = device
        self._running: list[tuple[nn.Module, RecordedCalls | None, float]] = []

    def before(self, path: str):
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
            if self._running:
                self._running.append((module, None, 0.0))
                return
            try:
                calls = self._calls_like(path, module, args, kwargs)
            except Exception as error:  # the generation must not fail because it is watched
                self._run.failures[path] = f"{type(error).__name__}: {error}"
                calls = None
            self._running.append((module, calls, self._now()))

        return hook

    def _calls_like(self, path: str, module: nn.Module, args: tuple, kwargs: dict) -> RecordedCalls:
        key = (path, *_signature((args, kwargs)))
        if key not in self._run.calls:
            kept = tree_map(_without_data, (args, kwargs))
            self._run.calls[key] = RecordedCalls(path, module, *kept)
        return self._run.calls[key]

    def after(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        # A module that another hook kept from starting was never entered.
        if not self._running or self._running[-1][0] is not module:
            return
        _, calls, started = self._running.pop()
        if calls is not None:
            calls.count += 1
            calls.seconds.append(self._now() - started)

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def _signature(arguments: Any) -> tuple:
    """What decides how much work a call is: shapes and kinds of tensors, other values as they are, masks by sum."""
    leaves, structure = tree_flatten(arguments)
    return (str(structure), *(_leaf_signature(leaf) for leaf in leaves))


def _leaf_signature(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf) if isinstance(leaf, (int, str, type(None))) else type(leaf).__name__
    # Two dimensions of zeros and ones are a mask: its number of ones is the length that some networks cut to.
    is_mask = leaf.dim() == 2 and not leaf.is_floating_point() and leaf.numel() and bool((leaf <= 1).all())
    return (tuple(leaf.shape), str(leaf.dtype), tuple(leaf.sum(1).tolist()) if is_mask else None)


def _without_data(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if not leaf.is_floating_point() and not leaf.is_complex() and leaf.numel() <= LARGEST_KEPT_NUMEL:
        return leaf.detach().to("cpu", copy=True)
    return torch.empty_like(leaf, device="meta")
