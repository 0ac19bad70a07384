"""Energy by counters that are there: NVML's of a GPU, RAPL's of the CPU packages.

Sources: NVML API, nvmlDeviceGetTotalEnergyConsumption (millijoules since the driver was loaded, Volta and newer);
Documentation/power/powercap/powercap.rst of Linux (energy_uj, max_energy_range_uj).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from swinmr_profiling.profiler.measure.machine.devices import DeviceError

POWERCAP = Path("/sys/class/powercap")
# Counters are renewed every 1 ms (RAPL) to 100 ms (NVML): over this long, that is 5 % at most.
LEAST_SECONDS, LEAST_RUNS, MOST_SECONDS = 2.0, 3, 60.0

ReaderName = Literal["nvml", "rapl"]


class EnergyError(DeviceError):
    """There is no counter to read; one line for the user."""


class EnergyReader(Protocol):
    """A counter. untried: whether this code has never met the hardware."""

    name: ReaderName
    covers: str
    untried: bool

    def joules(self) -> float:
        """Joules since some moment; only differences say something."""


class NvmlEnergy:
    """The whole card's counter. Raises EnergyError where the driver or the card has none."""

    name: ReaderName = "nvml"
    covers = "the whole GPU board, whoever uses it"
    untried = True

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        """uuid: as torch has it. nvml: stands for pynvml."""
        try:
            if nvml is None:
                nvml = import_module("pynvml")
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
            self._nvml = nvml
            self.joules()
        except Exception as error:  # NVMLError has a class per reason, and the package may be missing
            raise EnergyError(f"NVML counts no energy here ({error})") from error

    def joules(self) -> float:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


class RaplEnergy:
    """The counters of all CPU packages; each begins again at 0 when it is full."""

    name: ReaderName = "rapl"
    covers = "all CPU packages, without memory and the rest of the machine, whoever uses them"
    untried = True

    def __init__(self, folder: Path = POWERCAP) -> None:
        # "intel-rapl:0", on AMD too; "intel-rapl:0:0" is a part of it, "intel-rapl-mmio:0" the same by another way.
        self._packages = [
            zone
            for zone in sorted(folder.glob("intel-rapl:*"))
            if self._text(zone / "name").startswith("package")
        ]
        if not self._packages:
            raise EnergyError(f"{folder} has no counter of a CPU package (virtual machines mostly have none)")
        try:
            self._last = [self._number(zone / "energy_uj") for zone in self._packages]
            self._full = [self._number(zone / "max_energy_range_uj") for zone in self._packages]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise EnergyError(
                f"the CPU's energy counters cannot be read ({reason}): only root may"
            ) from error
        self._total = 0

    @staticmethod
    def _text(file: Path) -> str:
        try:
            return file.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""

    @staticmethod
    def _number(file: Path) -> int:
        return int(file.read_text(encoding="ascii"))

    def joules(self) -> float:
        now = [self._number(zone / "energy_uj") for zone in self._packages]
        for value, last, full in zip(now, self._last, self._full, strict=True):
            self._total += value - last if value >= last else value + full - last
        self._last = now
        return self._total / 1e6


def open_energy(device: torch.device) -> EnergyReader:
    """The counter of a device. Raises EnergyError."""
    if device.type == "cuda":
        return NvmlEnergy(str(torch.cuda.get_device_properties(device).uuid))
    return RaplEnergy()


@dataclass(frozen=True)
class CountedRuns:
    """What some runs took."""

    runs: int
    seconds: float
    joules: float


def count_energy(
    run: Callable[[], object],
    wait: Callable[[], object],
    reader: EnergyReader,
    *,
    least_seconds: float = LEAST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> CountedRuns:
    """Energy of calls one after the other, at least `LEAST_RUNS` and `least_seconds` of them, after one to warm up.

    wait: until the device is done.
    """
    run()
    wait()
    first, begin, runs = reader.joules(), clock(), 0
    while runs < LEAST_RUNS or clock() - begin < least_seconds:
        run()
        wait()
        runs += 1
        if clock() - begin > MOST_SECONDS:
            break
    seconds = clock() - begin
    return CountedRuns(runs, seconds, max(reader.joules() - first, 0.0))
