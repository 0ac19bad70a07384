"""What else the machine is doing that can spoil a measurement: load, steal time, power saving, throttling, others.

Reads counters only; a counter that a system lacks gives no warning, not an invented one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from swinmr_profiling.profiler.record.warnings import ProfileWarning

Answer = TypeVar("Answer")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
# More runnable processes than cores: our threads wait for others. Read before we start, so that our own work
# is not in it.
LOAD_PER_CORE = 1.0
# Warn when steal time exceeds 5 % of the processor time that programs wanted: a quiet host takes under 1 %, and 5 % is
# as much as two processes that run the same network differ by anyway.
STEAL_TIME_SHARE = 0.05
WANTED_TIMES = ("user", "nice", "system", "irq", "softirq", "steal")
# NVML's reasons for a clock below the requested one that mean heat or power, not idleness (nvml.h,
# nvmlClocksEventReason*): software power cap, hardware slowdown, software and hardware thermal slowdown,
# hardware power brake.
THROTTLE_REASONS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def load_now() -> float | None:
    """Load average of the last minute, None where the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def load_warning(cores: int, load: float | None) -> ProfileWarning | None:
    """Whether other programs were using the cores; load: of the last minute, before anything was started."""
    if load is None or load <= LOAD_PER_CORE * cores:
        return None
    return ProfileWarning(
        "machine_busy",
        f"the machine is busy: load average {load:.1f} on {cores} cores before the first measurement; "
        "latencies will be too high",
    )


def governor_warning() -> ProfileWarning | None:
    """A warning when the CPU is told to save power."""
    # intel_pstate and amd-pstate in active mode call their ordinary, scaling policy "powersave".
    scales = said(GOVERNOR.with_name("scaling_driver")) in ("intel_pstate", "amd-pstate-epp")
    if said(GOVERNOR) != "powersave" or scales:
        return None
    return ProfileWarning(
        "power_saving",
        "the CPU frequency governor is 'powersave': set 'performance' (cpupower frequency-set -g performance)",
    )


def said(file: Path) -> str | None:
    """The text of a small file of the system's; None where there is none."""
    with suppress(OSError):
        return file.read_text(encoding="ascii", errors="replace").strip()
    return None


class StealTime:
    """Steal time of a virtual machine: what its host takes from now on (Linux; elsewhere nothing)."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def warning(self, batch_size: int) -> ProfileWarning | None:
        """A warning when steal time exceeds 5 % of the processor time that programs wanted."""
        now = psutil.cpu_times()
        spent = {name: getattr(now, name, 0.0) - getattr(self._before, name, 0.0) for name in WANTED_TIMES}
        wanted = sum(spent.values())
        if wanted <= 0 or spent["steal"] / wanted <= STEAL_TIME_SHARE:
            return None
        return ProfileWarning(
            "time_stolen",
            f"steal time is {spent['steal'] / wanted:.0%}: the host of this virtual machine gave that much of the "
            "processor time to others, and latencies are too high",
            batch_size,
        )


def ask_nvml(uuid: str | None, question: Callable[[Any, Any], Answer | None]) -> Answer | None:
    """What `question` finds with pynvml and the handle of the GPU with this UUID; None where NVML does not tell."""
    if uuid is None:
        return None
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError):  # this card or driver does not tell
            pynvml.nvmlInit()
            try:
                name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
                return question(pynvml, pynvml.nvmlDeviceGetHandleByUUID(name))
            finally:
                pynvml.nvmlShutdown()
    return None


def gpu_warnings(uuid: str | None, own_pids: set[int]) -> list[ProfileWarning]:
    """Throttled clocks now, and compute processes on the GPU that are not ours."""
    found: list[ProfileWarning] = []

    def look(nvml: Any, handle: Any) -> None:
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        names = [name for bit, name in THROTTLE_REASONS.items() if reasons & bit]
        if names:
            text = f"the GPU is throttled ({', '.join(names)}): latencies are those of a slowed card"
            found.append(ProfileWarning("gpu_throttled", text))
        others = sorted(
            {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)} - own_pids
        )
        if others:
            shown = ", ".join(map(str, others[:5]))
            text = f"other processes compute on the GPU (pid {shown}): time and memory are shared"
            found.append(ProfileWarning("gpu_shared", text))

    ask_nvml(uuid, look)
    return found


def nvml_process_bytes(uuid: str | None, pid: int) -> int | None:
    """What NVML says this process holds on the GPU; None where it does not list it (containers, Windows, MIG)."""

    def used(nvml: Any, handle: Any) -> int | None:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return next((process.usedGpuMemory for process in running if process.pid == pid), None)

    return ask_nvml(uuid, used)


def nvml_used_bytes(uuid: str | None) -> int | None:
    """What all processes together hold on the GPU, without making a CUDA context; None where NVML is not there."""
    return ask_nvml(uuid, lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).used))
