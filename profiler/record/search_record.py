"""What a search for a batch size knows: trials, the memory they found, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pydantic import Field

from swinmr_profiling.profiler.record.blocks.recommended import TrainingSearch
from swinmr_profiling.profiler.record.device_memory import reserved_by_others
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.units import MIB

# A larger batch may take a little less: cuDNN chooses other algorithms. More than this less is not a measurement.
MONOTONE_SHARE, MONOTONE_BYTES = 0.02, 40 * MIB


@dataclass(frozen=True)
class MemoryNow:
    """Of the device, bytes: free, cached by the process that will run (its own to use), total, and its context."""

    free_bytes: int
    cached_bytes: int = 0
    total_bytes: int | None = None
    context_bytes: int = 0

    @property
    def unused_bytes(self) -> int:
        """What is free and what the process holds unused, each once."""
        return self.free_bytes + self.cached_bytes

    @property
    def available_bytes(self) -> int:
        """What the process may hold in all, its context included: the device without what others hold."""
        return self.unused_bytes + self.context_bytes

    def held_by_others(self, total_bytes: int) -> int:
        """Bytes that other processes hold. total_bytes: of a device that had no room for a process to tell."""
        own = self.cached_bytes + self.context_bytes
        return reserved_by_others(self.total_bytes or total_bytes, self.free_bytes, own)


@dataclass(frozen=True)
class ProbeResult:
    """One trial. peak_bytes: what it took from the device (None where it failed). measurement: all of it, for whoever
    asked for the search.

    allocated_bytes: what its tensors took, which must grow with the batch; what is reserved for them need not.
    """

    batch_size: int
    peak_bytes: int | None
    steps_run: int
    retries: int = 0
    allocated_bytes: int | None = None
    failure: Failure | None = None
    measurement: Any = field(default=None, compare=False, repr=False)


class SearchResult(TrainingSearch):
    """How a search ended, and what beside its record the run goes on with.

    memory: as last read, None where it could not be. measurements: of what ran, as the trials gave them.
    """

    memory: MemoryNow | None = Field(exclude=True)
    measurements: dict[int, Any] = Field(exclude=True)


class MemoryReadError(Exception):
    """Free memory could not be read; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def falling_memory(allocated_bytes: dict[int, int]) -> str | None:
    """Says where memory falls as the batch grows, by more than chance; None where it never does.

    allocated_bytes: batch -> what tensors took. What is reserved for them may well fall: no measure of this.
    """
    sizes = sorted(allocated_bytes)
    for small, large in pairwise(sizes):
        before, after = allocated_bytes[small], allocated_bytes[large]
        if after < before - max(before * MONOTONE_SHARE, MONOTONE_BYTES):
            return (
                f"memory falls from {before / MIB:,.0f} MiB at batch {small} to {after / MIB:,.0f} MiB at "
                f"batch {large}"
            )
    return None
