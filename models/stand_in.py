"""The device that tensors without data stand for, so that a trace takes the way the device itself would take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import torch

# torch.is_autocast_enabled, torch.get_autocast_dtype, ...: each takes the type of a device first.
_AUTOCAST_STATE = (("is", "enabled"), ("get", "dtype"), ("set", "enabled"), ("set", "dtype"))
_meta_stands_for = "meta"


def stands_for(device_type: str) -> str:
    """The device type to decide by: for "meta" what `meta_stands_for` says, else the type itself."""
    return _meta_stands_for if device_type == "meta" else device_type


@contextmanager
def all_entered(contexts: Iterable[AbstractContextManager[Any]]) -> Iterator[None]:
    """Several contexts as one, each entered before the next is made; what is patched is as before in the end."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


@contextmanager
def meta_stands_for(device_type: str) -> Iterator[None]:
    """While it lasts, tensors on the meta device are treated as tensors on that device (in this process)."""
    global _meta_stands_for
    before, _meta_stands_for = _meta_stands_for, device_type
    try:
        yield
    finally:
        _meta_stands_for = before


def autocast_on_meta(device_type: str) -> AbstractContextManager[None]:
    """While it lasts, `torch.autocast("meta", ...)`, and what is asked of it, is that of another device.

    PyTorch knows no autocast of the meta device, and many a network takes that of its input's device
    (`torch.autocast(x.device.type, enabled=False)` around what has to stay in fp32): it would not run without data.
    With "cpu" it changes nothing, as the CPU's autocast leaves tensors of the meta device alone.
    """

    def of_stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def asked(*args: Any, **kwargs: Any) -> Any:
            known = {name: device_type if value == "meta" else value for name, value in kwargs.items()}
            return function(*(device_type if arg == "meta" else arg for arg in args), **known)

        return asked

    asked_of = [
        (torch.amp.autocast_mode.autocast, "__init__"),
        (torch.amp.autocast_mode, "is_autocast_available"),
        (torch.amp, "is_autocast_available"),
        *((torch, f"{verb}_autocast_{what}") for verb, what in _AUTOCAST_STATE),
    ]
    return all_entered(
        mock.patch.object(owner, name, of_stand_in(getattr(owner, name))) for owner, name in asked_of
    )
