"""Selective checkpointing: chosen modules of any network compute their forward again in the backward pass.

(Chen et al. 2016, "Training deep nets with sublinear memory cost".) Names in the state dict, hooks and types stay as
they are: a chosen module has another `forward`, nothing else.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from swinmr_profiling.configs.error_words import did_you_mean
from swinmr_profiling.models.errors import ModelError

WILDCARDS = "*?["


def recomputed(function: Callable[..., Any], *inputs: Any, when: bool) -> Any:
    """function(*inputs); `when` it is asked for, its inputs alone are saved and the backward pass computes it again."""
    if when and torch.is_grad_enabled():
        # The reentrant form breaks DistributedDataParallel, and needs inputs that require gradients.
        return checkpoint(function, *inputs, use_reentrant=False)
    return function(*inputs)


class RecomputedForward:
    """Stands in the place of a module's forward: runs it, keeps its inputs alone, and runs it again when it must.

    The random numbers and autocast of the first run are those of the second. Running statistics of norms are
    updated by the first alone: they do not change what a norm in training returns. calls: how often it was run so.
    Raises ModelError for a module whose forward changes another buffer: the second run might return something else.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name, self.calls = module, name, 0
        self.forward = module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        self.calls += 1
        watched = [] if torch.compiler.is_compiling() else list(self._buffers_that_count())
        before = [(buffer, buffer._version) for _, buffer in watched]
        result = checkpoint(self.forward, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)
        for (path, _), (buffer, version) in zip(watched, before, strict=True):
            if buffer._version != version:
                raise ModelError(
                    f"training.gradient_checkpointing: {self.name} changes its buffer {path} in its forward, which "
                    "cannot be run twice: leave it out"
                )
        return result

    def _buffers_that_count(self) -> Iterator[tuple[str, Tensor]]:
        for path, child in self.module.named_modules():
            if not isinstance(child, _NormBase):
                for name, buffer in child._buffers.items():
                    if buffer is not None:
                        yield f"{path}.{name}" if path else name, buffer

    def _contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), statistics_kept(self.module)


@contextmanager
def statistics_kept(module: nn.Module) -> Iterator[None]:
    """Norms in it update copies of their running statistics, which are forgotten."""
    kept: list[tuple[_NormBase, dict[str, Tensor | None]]] = []
    for child in module.modules():
        if isinstance(child, _NormBase) and child.training and child.track_running_stats:
            kept.append((child, dict(child._buffers)))
            for name, buffer in child._buffers.items():
                # A copy rather than nothing: a second run must save as many tensors as the first.
                child._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for child, buffers in kept:
            child._buffers.update(buffers)


def is_callable(module: nn.Module) -> bool:
    """Whether the module has a forward: a ModuleList has none."""
    return type(module).forward is not nn.Module.forward


def chosen_modules(module: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Names of the modules that patterns choose, in the network's order; of modules inside one another the outermost.

    A pattern is a name as in `named_modules`, or has `*`, `?` and `[...]`, of which `*` matches points too.
    Raises ModelError for a pattern that chooses none.
    """
    names = {name: child for name, child in module.named_modules() if name}
    found: set[str] = set()
    for pattern in patterns:
        if any(sign in pattern for sign in WILDCARDS):
            matched = [name for name in fnmatch.filter(names, pattern) if is_callable(names[name])]
        else:
            matched = [name for name in (pattern,) if name in names]
        if not matched:
            known = did_you_mean(pattern, names, f"the first are {', '.join(list(names)[:4])}")
            raise ModelError(f"training.gradient_checkpointing: no module is called {pattern!r}: {known}")
        for name in matched:
            if not is_callable(names[name]):
                raise ModelError(
                    f"training.gradient_checkpointing: {name} is a {type(names[name]).__name__}, which is not called "
                    f'itself: name its parts, as "{name}.*"'
                )
        found.update(matched)
    parents = {name: name.split(".") for name in found}
    return [
        name
        for name in names
        if name in found
        and not any(".".join(parents[name][:n]) in found for n in range(1, len(parents[name])))
    ]


def recompute_modules(module: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Makes the chosen modules compute their forward again in the backward pass; the names, resolved.

    Raises ModelError as `chosen_modules` does, and for a network that is checkpointed so already.
    """
    if recomputed_modules(module):
        raise ModelError("training.gradient_checkpointing: modules of this network are checkpointed already")
    names = chosen_modules(module, patterns)
    for name in names:
        child = module.get_submodule(name)
        child.forward = RecomputedForward(child, name)  # type: ignore[method-assign]
    return names


def recomputed_modules(module: nn.Module) -> dict[str, RecomputedForward]:
    """What stands in the place of the forwards, by the module's name."""
    return {
        name: child.__dict__["forward"]
        for name, child in module.named_modules()
        if isinstance(child.__dict__.get("forward"), RecomputedForward)
    }


def never_called(module: nn.Module) -> list[str]:
    """Names of chosen modules that no forward pass has called: choosing them saves nothing."""
    return [name for name, forward in recomputed_modules(module).items() if not forward.calls]
