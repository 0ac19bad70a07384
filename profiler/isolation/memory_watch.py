"""How much of the host's memory a process may hold, watched from outside as resident memory.

Never by RLIMIT_AS: CUDA maps address space by the terabyte. Watching needs no rights, and ends a process before the
kernel has to choose one.
"""

from __future__ import annotations

import time
from contextlib import suppress

import psutil

from swinmr_profiling.models.host_memory import available_bytes
from swinmr_profiling.profiler.record.failures import MEMORY_LIMIT, Failure

# A process fills one or two gigabytes a second.
INTERVAL_S = 0.1
GIB = 2**30
_allowed_bytes: int | None = None


def allow(limit_bytes: int | None) -> None:
    """What each process that this one starts from now on may hold; None: what is free when it starts."""
    global _allowed_bytes
    _allowed_bytes = limit_bytes


class MemoryWatch:
    """Of one process and all it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._looked_at = -INTERVAL_S
        self.is_asked_for = _allowed_bytes is not None
        self.limit_bytes = available_bytes() if _allowed_bytes is None else _allowed_bytes

    def held_bytes(self) -> int:
        """Resident memory of the process, and of its children without what they share with it."""
        held = 0
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            held = process.memory_info().rss
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    memory = child.memory_info()
                    held += memory.rss - getattr(memory, "shared", 0)
        return held

    def breach(self) -> Failure | None:
        """What a process that holds more is ended for; looked at every 0.1 s, however often it is called."""
        if time.monotonic() - self._looked_at < INTERVAL_S:
            return None
        self._looked_at = time.monotonic()
        held = self.held_bytes()
        if held <= self.limit_bytes:
            return None
        limit = f"{self.limit_bytes / GIB:,.2f} GiB"
        why = f"that {MEMORY_LIMIT} allows" if self.is_asked_for else f"that were free ({MEMORY_LIMIT})"
        detail = f"the process held {held / GIB:,.2f} GiB, more than the {limit} {why}"
        return Failure("killed", detail, needs_new_process=True)
