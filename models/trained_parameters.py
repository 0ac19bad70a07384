"""Which parameters are trained, by patterns of their names, and weights that are bf16 themselves ("pure bf16")."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from swinmr_profiling.models.errors import ModelError


def freeze(module: nn.Module, trainable: Sequence[str] | None) -> None:
    """Leaves gradients to parameters whose name matches one of the patterns; None changes nothing.

    Patterns are a shell's: `layers.0.*`, `*.bias`. Raises ModelError for a pattern that matches no parameter.
    """
    if trainable is None:
        return
    kept = {id(parameter) for parameter in matching_parameters(module, trainable)}
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.requires_grad and id(parameter) in kept)


def matching_parameters(module: nn.Module, trainable: Sequence[str]) -> list[nn.Parameter]:
    """The parameters whose name matches one of the patterns. Raises ModelError for a pattern that matches none."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in trainable:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=2, cutoff=0.4) or names[:2]
            raise ModelError(
                f"training.trainable: no parameter is called {pattern!r}; there are {' and '.join(near)}, "
                f"{len(names)} in all"
            )
    return [
        parameter
        for name, parameter in module.named_parameters()
        if any(fnmatchcase(name, pattern) for pattern in trainable)
    ]


def to_bf16_weights(module: nn.Module) -> nn.Module:
    """The module with weights and real buffers in bf16; real inputs are cast as it is called, whoever calls it."""
    module.to(torch.bfloat16)
    module.register_forward_pre_hook(_cast_inputs, with_kwargs=True)
    return module


def _cast_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return tree_map_only(
        Tensor, lambda x: x.to(torch.bfloat16) if x.is_floating_point() else x, (args, kwargs)
    )
