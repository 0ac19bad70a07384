"""What the caller has set around a call from Python, and other threads, must not reach the step that is predicted.

A prediction changes torch for its process while it lasts (`cuda_emulation.py`), and autocast keeps casts until the
outermost context ends: two at once, or one inside a caller's autocast, told another number and said nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

# Reentrant: a step may itself ask for a count.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def apart() -> Iterator[None]:
    """One prediction or count at a time in this process, outside of what this thread has entered.

    Gradients are on, inference mode and autocast are off, as at the beginning of a program; all is as before at the
    end. The casts that a caller's autocast keeps are made again by its next operators.
    """
    with _ONE_AT_A_TIME, ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda", "xpu"):
            was_enabled = torch.is_autocast_enabled(device)
            torch.set_autocast_enabled(device, False)
            stack.callback(torch.set_autocast_enabled, device, was_enabled)
        stack.enter_context(_outermost())
        yield


@contextmanager
def _outermost() -> Iterator[None]:
    """Autocast contexts that begin now are outermost ones: what they keep ends with them."""
    depth = torch.autocast_increment_nesting() - 1  # type: ignore[no-untyped-call]
    for _ in range(depth + 1):
        torch.autocast_decrement_nesting()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for _ in range(depth):
            torch.autocast_increment_nesting()  # type: ignore[no-untyped-call]
