"""Compiled parts of a pipeline's networks: they run compiled, and are counted at their boundary.

What a compiler made of a network passes the dispatcher only in parts. While a run is watched such a part runs as it
would unwatched, without the counter, and its arguments' shapes are kept. What a call of those shapes takes is counted
afterwards from one trace of the eager original, on a copy without data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from swinmr_profiling.profiler.counting import CountReport
from swinmr_profiling.profiler.counting.components import ComponentMode, component_of
from swinmr_profiling.profiler.counting.count import report_of
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker

# Masks, token ids and times are kept with their values, for networks that read them.
LARGEST_KEPT_NUMEL = 65536
INDUCTOR = "torch._inductor.output_code"


@dataclass
class BoundaryCalls:
    """All calls of one compiled part with arguments of the same shapes. `args`: without data, but small integers."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    count: int = 0


@dataclass
class CompiledPart:
    """A compiled callable that `holder` keeps as `attribute` in its __dict__, made of a method of `module`.

    Attributes:
        path: of the module, beginning with the network's name.
        method: name of that method; None where the original is not one of the module's class.
        eager_calls: of these another dispatch mode kept the compiler away, and they were counted as they ran.
    """

    path: str
    holder: nn.Module
    attribute: str
    module: nn.Module
    method: str | None
    calls: dict[tuple[Any, ...], BoundaryCalls] = field(default_factory=dict)
    eager_calls: int = 0

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # What decides how much work a call is: shapes and kinds of tensors, other values as they are, masks by sum.
        leaves, structure = tree_flatten((args, kwargs))
        key = (str(structure), *map(_leaf_signature, leaves))
        if key not in self.calls:
            self.calls[key] = BoundaryCalls(*tree_map(_without_data, (args, kwargs)))
        self.calls[key].count += 1

    def traced(self, calls: BoundaryCalls) -> CountReport:
        """One of the calls. Raises what the original raises without data."""
        if self.method is None:
            raise ValueError("what was compiled is not a method of the network")
        own = vars(self.holder).pop(self.attribute, None) if self.holder is self.module else None
        try:
            with random_state_kept():
                copied, (args, kwargs) = copy_to(self.module, (_floats(calls.args), _floats(calls.kwargs)))
        finally:
            if own is not None:
                vars(self.holder)[self.attribute] = own
        args, kwargs = _with_integers(args, calls.args), _with_integers(kwargs, calls.kwargs)
        mode = CountingMode(ModuleTracker(copied))
        with random_state_kept(), torch.no_grad(), mode.tracker, mode:
            (copied if self.method == "forward" else getattr(copied, self.method))(*args, **kwargs)
        mode.raise_from_threads()
        return report_of(mode, args, kwargs, "meta", None)


def compiled_parts(networks: dict[str, nn.Module]) -> Iterator[CompiledPart]:
    """The outermost compiled parts of these networks (a wrapper of `torch.compile` as itself)."""
    for name, network in networks.items():
        inside: set[nn.Module] = set()
        for path, module in network.named_modules():
            if module in inside:
                continue
            parts = list(_parts_of(".".join(filter(None, (name, path))), module))
            yield from parts
            if any(part.method == "forward" for part in parts):
                inside.update(module.modules())


def _parts_of(path: str, module: nn.Module) -> Iterator[CompiledPart]:
    if (original := module._modules.get("_orig_mod")) is not None and "forward" in vars(module):
        yield CompiledPart(path, module, "forward", original, "forward")
        return
    if vars(module).get("_compiled_call_impl") is not None:
        yield CompiledPart(path, module, "_compiled_call_impl", module, "forward")
    for name, value in list(vars(module).items()):
        eager = getattr(value, "_torchdynamo_orig_callable", None)
        if callable(value) and eager is not None and name != "_compiled_call_impl":
            own = getattr(type(module), name, None)
            known = getattr(eager, "__self__", None) is module and getattr(eager, "__func__", None) is own
            yield CompiledPart(path, module, name, module, name if known else None)


@contextmanager
def counted_at_boundary(parts: list[CompiledPart], mode: ComponentMode) -> Iterator[None]:
    """While the block runs, calls of the parts are noted and go past the counter and its hooks."""
    own = [(part, vars(part.holder)[part.attribute]) for part in parts]
    for part, compiled in own:
        vars(part.holder)[part.attribute] = _bypass(part, compiled, mode)
    try:
        yield
    finally:
        for part, compiled in own:
            vars(part.holder)[part.attribute] = compiled


def _bypass(part: CompiledPart, compiled: Callable[..., Any], mode: ComponentMode) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not mode.is_innermost():
            # Under a mode of somebody else's the compiler stays away, watched or not.
            part.eager_calls += 1
            return compiled(*args, **kwargs)
        part.note(args, kwargs)
        if component_of(mode.tracker.running().path) != component_of(part.path):
            mode.tracker.called(part.path, args, kwargs)
        mode.__exit__(None, None, None)
        try:
            with mode.tracker.hooks_off():
                return compiled(*args, **kwargs)
        finally:
            mode.__enter__()

    return call


def other_compiled_code(mode: ComponentMode) -> AbstractContextManager[object]:
    """Lists what inductor made of functions that are no parts of a network: of its kernels only some are seen."""
    kind: Any = getattr(sys.modules.get(INDUCTOR), "CompiledFxGraph", None)
    if kind is None:
        return nullcontext()
    own = kind.__call__

    def call(graph: Any, *args: Any, **kwargs: Any) -> Any:
        if mode.is_innermost():
            mode.tallies.uncounted["compiled::function"] += 1
            mode.uncounted_by[""].add("compiled::function")
        return own(graph, *args, **kwargs)

    return mock.patch.object(kind, "__call__", call)


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


def _is_integer(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not leaf.is_meta


def _floats(arguments: Any) -> Any:
    return tree_map(lambda leaf: None if _is_integer(leaf) else leaf, arguments)


def _with_integers(copied: Any, originals: Any) -> Any:
    """The copied arguments with the integer tensors put back, as they are: CPU tensors with their values."""
    kept, structure = tree_flatten(originals)
    leaves, _ = tree_flatten(copied)
    pairs = zip(leaves, kept, strict=True)
    return tree_unflatten([own if _is_integer(own) else leaf for leaf, own in pairs], structure)
