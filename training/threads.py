"""One CPU thread for work too small to share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs a block with one thread of torch, as loader processes do anyway, and restores the number.

    Transforms of one slice take milliseconds. Split over threads they gain little on idle cores, and on busy
    ones the threads wait for each other: 300 ms instead of 6 for a 256 x 256 slice were seen.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
