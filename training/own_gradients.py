"""Networks whose forward takes gradients itself: energy and score networks, variational networks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch import nn

Result = TypeVar("Result")

# Networks that have failed without gradients, so that no second batch is run in vain.
_take_gradients: WeakSet[nn.Module] = WeakSet()


def wants_gradients(error: BaseException) -> bool:
    """Whether a forward that takes gradients itself failed for being run without them."""
    return isinstance(error, RuntimeError) and any(
        text in str(error)
        for text in (
            "does not require grad",
            "Setting requires_grad=True on inference tensor",
            "Inference tensors",
        )
    )


def without_gradients(
    network: nn.Module,
    run: Callable[[], Result],
    plainly: Callable[[], AbstractContextManager[Any]] = torch.inference_mode,
) -> Result:
    """`run()`, which calls the network, without gradients; with them where its forward takes gradients itself.

    plainly: the context that is tried first. What `run` returns may be part of a graph: detach what is kept. Its inputs
    must not be made in inference mode. Raises whatever `run` raises.
    """
    if network not in _take_gradients:
        try:
            with plainly():
                return run()
        except RuntimeError as error:
            if not wants_gradients(error):
                raise
        _take_gradients.add(network)
    with torch.inference_mode(False), torch.enable_grad():
        return run()
