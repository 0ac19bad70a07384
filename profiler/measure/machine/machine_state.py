"""What else the machine is doing that can spoil a measurement: load, steal time, power saving, throttling, others.

Reads counters only; a counter that a system lacks gives no warning, not an invented one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from swinmr_profiling.profiler.record.warnings import ProfileWarning

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
    if load is None:
        return None
    if load <= LOAD_PER_CORE * cores:
        return None
    return ProfileWarning(
        "machine_busy",
        f"the machine is busy: load average {load:.1f} on {cores} cores before the first measurement; "
        "latencies will be too high",
    )


def governor_warning() -> ProfileWarning | None:
    """A warning when the CPU is told to save power."""
    try:
        governor = GOVERNOR.read_text().strip()
    except OSError:
        return None
    if governor != "powersave" or _driver_scales_powersave():
        return None
    return ProfileWarning(
        "power_saving",
        "the CPU frequency governor is 'powersave': set 'performance' (cpupower frequency-set -g performance)",
    )


def _driver_scales_powersave() -> bool:
    # intel_pstate and amd-pstate in active mode call their ordinary, scaling policy "powersave".
    try:
        driver = GOVERNOR.with_name("scaling_driver").read_text().strip()
    except OSError:
        return False
    return driver in ("intel_pstate", "amd-pstate-epp")


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


@contextmanager
def nvml_device(uuid: str | None) -> Iterator[tuple[Any, Any] | None]:
    """(pynvml, handle) of the GPU with this UUID, or None where NVML cannot be asked."""
    if uuid is None:
        yield None
        return
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml, handle
    finally:
        pynvml.nvmlShutdown()


def gpu_warnings(uuid: str | None, own_pids: set[int]) -> list[ProfileWarning]:
    """Throttled clocks now, and compute processes on the GPU that are not ours."""
    found: list[ProfileWarning] = []
    with nvml_device(uuid) as opened:
        if opened is None:
            return found
        pynvml, handle = opened
        try:
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            names = [name for bit, name in THROTTLE_REASONS.items() if reasons & bit]
            if names:
                text = f"the GPU is throttled ({', '.join(names)}): latencies are those of a slowed card"
                found.append(ProfileWarning("gpu_throttled", text))
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            others = sorted({process.pid for process in running} - own_pids)
            if others:
                shown = ", ".join(map(str, others[:5]))
                text = f"other processes compute on the GPU (pid {shown}): time and memory are shared"
                found.append(ProfileWarning("gpu_shared", text))
        except pynvml.NVMLError:
            return found  # this card or driver does not tell
    return found


def nvml_process_bytes(uuid: str | None, pid: int) -> int | None:
    """What NVML says this process holds on the GPU; None where it does not list it (containers, Windows, MIG)."""
    with nvml_device(uuid) as opened:
        if opened is None:
            return None
        pynvml, handle = opened
        try:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except pynvml.NVMLError:
            return None
        used = [process.usedGpuMemory for process in running if process.pid == pid]
        return used[0] if used else None


def nvml_used_bytes(uuid: str | None) -> int | None:
    """What all processes together hold on the GPU, without making a CUDA context; None where NVML is not there."""
    with nvml_device(uuid) as opened:
        if opened is None:
            return None
        pynvml, handle = opened
        try:
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        except pynvml.NVMLError:
            return None
