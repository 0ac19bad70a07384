"""What a device must offer to be measured: a clock that waits for the work, and its memory, by the allocator's own
counters on a GPU, by the kernel's on a CPU.

CpuDevice and CudaDevice have the same methods; tests put a device of their own in their place.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil
import torch

from swinmr_profiling.input_error import InputError
from swinmr_profiling.models.host_memory import available_bytes
from swinmr_profiling.profiler.measure.machine.machine_state import nvml_process_bytes
from swinmr_profiling.profiler.measure.measurement import AllocatorTroubles, DeviceMemory, StepPeaks

RESIDENT_SAMPLING_S = 0.01
# Of autocast; of bf16 weights there is none.
PRECISIONS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "pure_bf16": torch.float32,
}


class DeviceError(InputError):
    """The requested device or precision is not there; one line for the user."""


class MeasuredDevice(Protocol):
    """A device as the measurements see it; of one that says nothing else, nothing is reserved or retried."""

    kind: str  # "cpu" or "cuda"
    memory_kind: str  # what the memory figures are, in words
    memory_is_exact: bool  # an allocator's own counters, with nothing in them but tensors

    def time_ms(self, run: Callable[[], object]) -> float:
        """Milliseconds of one call, all its work finished."""

    def current_bytes(self) -> int:
        """Memory in use now."""

    def release_cached(self) -> None:
        """Gives back memory that is kept for reuse, before the use of what follows is read."""

    def reset_peak(self) -> None:
        """Starts new high-water marks from what is in use."""

    def peak(self) -> StepPeaks:
        """High-water marks since `reset_peak`."""

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
        return self.current_bytes()

    def expandable_segments(self) -> bool | None:
        """Whether the allocator really uses expandable segments; None where there is nothing to tell by."""
        return None


def _heap_trimmer() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; None where the C library has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


class CpuDevice(MeasuredDevice):
    """The host: wall-clock time, and the resident memory of this process (torch and Python included).

    Resident memory and its high-water mark are both by one means: on Linux the kernel's (VmRSS and VmHWM of
    /proc/self/status; the mark is reset through clear_refs); elsewhere, and where that file may not be written, a
    thread samples every 10 ms and misses shorter peaks, which the label says. The mark is never below what
    `current_bytes` has returned since the reset.
    """

    CLEAR_REFS = Path("/proc/self/clear_refs")
    STATUS = Path("/proc/self/status")
    kind = "cpu"
    memory_is_exact = False

    def __init__(self) -> None:
        self._highest_seen = 0
        self._trim_heap = _heap_trimmer()
        self._has_kernels_mark = self._clear()
        how = "kernel high-water mark" if self._has_kernels_mark else "sampled every 10 ms"
        self.memory_kind = f"resident memory of the whole process ({how})"
        if not self._has_kernels_mark:
            threading.Thread(target=self._sample, daemon=True).start()

    def _clear(self) -> bool:
        try:
            self.CLEAR_REFS.write_text("5")
            return min(self._kernels()) > 0
        except OSError:
            return False

    def _kernels(self) -> tuple[int, int]:
        """(resident, high-water mark) of one reading, bytes; 0 for what is not there."""
        found = {"VmRSS": 0, "VmHWM": 0}
        for line in self.STATUS.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0]) * 1024
        return found["VmRSS"], found["VmHWM"]

    def _sample(self) -> None:
        while True:
            self.current_bytes()
            time.sleep(RESIDENT_SAMPLING_S)

    def time_ms(self, run: Callable[[], object]) -> float:
        start = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - start) / 1e6

    def current_bytes(self) -> int:
        resident = self._kernels()[0] if self._has_kernels_mark else psutil.Process().memory_info().rss
        self._highest_seen = max(self._highest_seen, resident)
        return resident

    def release_cached(self) -> None:
        # What the C library keeps of an earlier batch would be in use before this one, which would then seem to need
        # less than a smaller one did.
        if self._trim_heap is not None:
            self._trim_heap(0)

    def reset_peak(self) -> None:
        self._highest_seen = 0
        if self._has_kernels_mark:
            self._clear()

    def peak(self) -> StepPeaks:
        # The kernel updates VmHWM lazily: it may lag behind the resident size, of the same reading or an earlier one.
        mark = max(self._kernels()) if self._has_kernels_mark else self.current_bytes()
        self._highest_seen = max(self._highest_seen, mark)
        return StepPeaks(self._highest_seen, None, None)


class CudaDevice(MeasuredDevice):
    """One GPU: CUDA events around the call, and the caching allocator's own counters."""

    kind = "cuda"
    memory_is_exact = True
    memory_kind = "torch's CUDA allocator (without the CUDA context)"

    def __init__(self, device: torch.device) -> None:
        # Before the first allocation the allocator's counters do not exist: asking for them would fail.
        torch.cuda.init()
        self.device = device
        torch.cuda.set_device(device)

    def time_ms(self, run: Callable[[], object]) -> float:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self.device)
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def current_bytes(self) -> int:
        torch.cuda.synchronize(self.device)
        return torch.cuda.memory_allocated(self.device)

    def release_cached(self) -> None:
        # Cached blocks of a smaller batch would count as reserved by this one. Never between warm-up and timed
        # runs: those would pay for allocating anew.
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()

    def reset_peak(self) -> None:
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> StepPeaks:
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


def resolve_device(name: str) -> torch.device:
    """torch device for "auto", "cpu", "cuda" or "cuda:N".

    Only "auto" falls back to the CPU. Raises DeviceError for a GPU that is not there.
    """
    if name == "cpu":
        return torch.device("cpu")
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda:0" if available else "cpu")
    if not available:
        built = "" if torch.version.cuda else f" (this torch, {torch.__version__}, is built without CUDA)"
        raise DeviceError(f"--device {name}: no CUDA device is available{built}; use --device cpu or auto")
    index = int(name.partition(":")[2] or 0)
    count = torch.cuda.device_count()
    if index >= count:
        last = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0"
        raise DeviceError(f"--device {name}: there is only {last}")
    return torch.device("cuda", index)


def open_device(device: torch.device) -> MeasuredDevice:
    """The measuring side of a torch device."""
    return CudaDevice(device) if device.type == "cuda" else CpuDevice()


def check_precision(device: torch.device, precision: str) -> torch.dtype:
    """dtype of autocast, float32 for none. Raises DeviceError where the GPU has no such arithmetic."""
    if precision in ("bf16", "pure_bf16") and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise DeviceError(f"{precision}: {torch.cuda.get_device_name(device)} has no bf16; use fp16 or fp32")
    return PRECISIONS[precision]
