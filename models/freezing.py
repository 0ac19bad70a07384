"""Which parameters are trained: by patterns of their names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from swinmr_profiling.models.errors import ModelError


def freeze(module: nn.Module, trainable: Sequence[str] | None) -> None:
    """Leaves gradients to parameters whose name matches one of the patterns; None changes nothing.

    Patterns are a shell's: `layers.0.*`, `*.bias`. Raises ModelError for a pattern that matches no parameter.
    """
    if trainable is None:
        return
    names = [name for name, _ in module.named_parameters()]
    for pattern in trainable:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=2, cutoff=0.4) or names[:2]
            raise ModelError(
                f"training.trainable: no parameter is called {pattern!r}; there are {' and '.join(near)}, "
                f"{len(names)} in all"
            )
    for name, parameter in module.named_parameters():
        matches = any(fnmatchcase(name, pattern) for pattern in trainable)
        parameter.requires_grad_(parameter.requires_grad and matches)
