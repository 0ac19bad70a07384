"""What a training step does to a device's memory: the allocator's own counters on a GPU, the kernel's on a CPU.

Tests put one of their own in the place of CudaMemory and ResidentMemory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from swinmr_profiling.models.host_memory import available_bytes
from swinmr_profiling.profiler.measure.machine.devices import CpuDevice, CudaDevice, MeasuredDevice
from swinmr_profiling.profiler.measure.machine.machine_state import nvml_process_bytes
from swinmr_profiling.profiler.measure.measurement import DeviceMemory, StepPeaks


@dataclass(frozen=True)
class AllocatorTroubles:
    """Since the process began: how often cached memory was given back to meet a request, and how often in vain."""

    retries: int
    out_of_memory: int


class TrainingMemory:
    """A device as the probe of a training step sees it; here what a device says of which nothing is reserved."""

    def __init__(self, clock: MeasuredDevice) -> None:
        self._clock = clock
        self.memory_kind = clock.memory_kind  # what `allocated` is, in words

    def time_ms(self, run: Callable[[], object]) -> float:
        """Milliseconds of one call, all its work finished."""
        return self._clock.time_ms(run)

    def reset_peaks(self) -> None:
        """Starts new high-water marks from what is in use."""
        self._clock.reset_peak()

    def peaks(self) -> StepPeaks:
        """High-water marks since `reset_peaks`."""
        return StepPeaks(self._clock.peak().peak_bytes, None, None)

    def current_bytes(self) -> int:
        """Memory in use now."""
        return self._clock.current_bytes()

    def troubles(self) -> AllocatorTroubles:
        """Retries and failures so far."""
        return AllocatorTroubles(0, 0)

    def device_memory(self) -> DeviceMemory:
        """Free, cached and total memory now."""
        return DeviceMemory(available_bytes(), 0, psutil.virtual_memory().total)

    def reserved_bytes(self) -> int | None:
        """Segments that this process holds now; None where nothing is reserved."""
        return None

    def process_bytes(self) -> int | None:
        """All that this process holds on the device, context included; None where nobody can tell."""
        return self._clock.current_bytes()

    def expandable_segments(self) -> bool | None:
        """Whether the allocator really uses expandable segments; None where there is nothing to tell by."""
        return None


class ResidentMemory(TrainingMemory):
    """The host: the resident memory of this process, Python and torch included; nothing is reserved or retried."""

    def __init__(self) -> None:
        super().__init__(CpuDevice())


class CudaMemory(TrainingMemory):
    """One GPU."""

    def __init__(self, device: torch.device) -> None:
        # Before the first allocation the allocator's counters do not exist: asking for them would fail.
        torch.cuda.init()
        self.device = device
        super().__init__(CudaDevice(device))

    def peaks(self) -> StepPeaks:
        stats = self._stats()
        return StepPeaks(
            allocated_bytes=stats["allocated_bytes.all.peak"],
            # cudaMallocAsync does not count it.
            requested_bytes=stats.get("requested_bytes.all.peak"),
            reserved_bytes=stats["reserved_bytes.all.peak"],
        )

    def troubles(self) -> AllocatorTroubles:
        stats = self._stats()
        return AllocatorTroubles(stats.get("num_alloc_retries", 0), stats.get("num_ooms", 0))

    def device_memory(self) -> DeviceMemory:
        torch.cuda.synchronize(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        # Reserved contains allocated: their sum would count what is in use twice.
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return DeviceMemory(free, cached, total)

    def reserved_bytes(self) -> int | None:
        return torch.cuda.memory_reserved(self.device)

    def process_bytes(self) -> int | None:
        torch.cuda.synchronize(self.device)
        return nvml_process_bytes(str(torch.cuda.get_device_properties(self.device).uuid), os.getpid())

    def expandable_segments(self) -> bool | None:
        segments = torch.cuda.memory_snapshot()
        return any(segment.get("is_expandable", False) for segment in segments) if segments else None

    def _stats(self) -> dict[str, int]:
        torch.cuda.synchronize(self.device)
        return torch.cuda.memory_stats(self.device)


def open_training_memory(device: torch.device) -> TrainingMemory:
    """The memory of a torch device."""
    return CudaMemory(device) if device.type == "cuda" else ResidentMemory()
