"""The device that tensors without data stand for, so that a trace takes the way the device itself would take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_meta_stands_for = "meta"


def stands_for(device_type: str) -> str:
    """The device type to decide by: for "meta" what `meta_stands_for` says, else the type itself."""
    return _meta_stands_for if device_type == "meta" else device_type


@contextmanager
def meta_stands_for(device_type: str) -> Iterator[None]:
    """While it lasts, tensors on the meta device are treated as tensors on that device (in this process)."""
    global _meta_stands_for
    before, _meta_stands_for = _meta_stands_for, device_type
    try:
        yield
    finally:
        _meta_stands_for = before
