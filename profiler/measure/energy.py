"""Energy by counters that are there (NVML's of a GPU, RAPL's of the CPU packages) of the network's forward pass and
training step, and its data loader under a clock.

Sources: NVML API, nvmlDeviceGetTotalEnergyConsumption (millijoules since the driver was loaded, Volta and newer);
Documentation/power/powercap/powercap.rst of Linux (energy_uj, max_energy_range_uj).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.forward_pass import evaluating, finish_work, inputs_on
from swinmr_profiling.profiler.measure.machine.devices import DeviceError
from swinmr_profiling.profiler.measure.machine.machine_state import said
from swinmr_profiling.profiler.measure.training.training_probe import prepared_training
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, EnergyFigure
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.training_step import is_finite, training_step

POWERCAP = Path("/sys/class/powercap")
# Counters are renewed every 1 ms (RAPL) to 100 ms (NVML): over this long, that is 5 % at most.
LEAST_SECONDS, LEAST_RUNS, MOST_SECONDS = 2.0, 3, 60.0
# Batches that are loaded for a figure, and seconds after which fewer will do.
LOADED_BATCHES, LEAST_LOADED, LOADING_SECONDS = 30, 3, 20.0

ReaderName = Literal["nvml", "rapl"]


class EnergyError(DeviceError):
    """There is no counter to read; one line for the user."""


class EnergyReader(Protocol):
    """A counter. This code has never met the hardware of any."""

    name: ReaderName
    covers: str

    def joules(self) -> float:
        """Joules since some moment; only differences say something."""


class NvmlEnergy:
    """The whole card's counter. Raises EnergyError where the driver or the card has none."""

    name: ReaderName = "nvml"
    covers = "the whole GPU board, whoever uses it"

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        """uuid: as torch has it. nvml: stands for pynvml."""
        try:
            self._nvml = nvml or import_module("pynvml")
            self._nvml.nvmlInit()
            name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(name)
            self.joules()
        except Exception as error:  # NVMLError has a class per reason, and the package may be missing
            raise EnergyError(f"NVML counts no energy here ({error})") from error

    def joules(self) -> float:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


class RaplEnergy:
    """The counters of all CPU packages; each begins again at 0 when it is full."""

    name: ReaderName = "rapl"
    covers = "all CPU packages, without memory and the rest of the machine, whoever uses them"

    def __init__(self, folder: Path = POWERCAP) -> None:
        # "intel-rapl:0", on AMD too; "intel-rapl:0:0" is a part of it, "intel-rapl-mmio:0" the same by another way.
        self._packages = [
            zone
            for zone in sorted(folder.glob("intel-rapl:*"))
            if (said(zone / "name") or "").startswith("package")
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
    return (
        NvmlEnergy(str(torch.cuda.get_device_properties(device).uuid))
        if device.type == "cuda"
        else RaplEnergy()
    )


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
    return CountedRuns(runs, clock() - begin, max(reader.joules() - first, 0.0))


def inference_energy(
    built: BuiltModel,
    forward: Callable[..., Any],
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    reader: EnergyReader,
    *,
    channels_last: bool,
) -> EnergyFigure:
    """Forward passes as `measure_forward` makes them. Raises whatever the network raises."""
    inputs = inputs_on(built, batch_size, device, channels_last=channels_last)

    def counted() -> CountedRuns:
        with evaluating(built.module, device, dtype):
            return count_energy(lambda: forward(*inputs), partial(finish_work, device), reader)

    shape = [int(n) for n in inputs[0].shape]
    return _figure("inference", batch_size, shape, without_gradients(built.module, counted), None)


def training_energy(
    built: BuiltModel, config: ExperimentConfig, device: torch.device, batch_size: int, reader: EnergyReader
) -> EnergyFigure:
    """Optimizer steps as `train.py` makes them, on example inputs. Raises whatever the step raises."""
    with prepared_training(built, config, device, batch_size, 10**6) as (state, settings, stream, _, _):
        found = count_energy(
            lambda: training_step(state, settings, stream, is_finite), partial(finish_work, device), reader
        )
    shape = built.input_shape(batch_size, "training")
    return _figure("training_step", batch_size, shape, found, batch_size * config.training.accumulate)


def _figure(
    what: str, batch_size: int, shape: list[int], found: CountedRuns, images_per_step: int | None
) -> EnergyFigure:
    each = found.joules / found.runs
    return EnergyFigure.model_validate(
        {
            "source": "measured",
            "what": what,
            "batch_size": batch_size,
            "input_shape": shape,
            "num_runs": found.runs,
            "duration_s": found.seconds,
            "joules": found.joules,
            "mean_watts": found.joules / found.seconds,
            "joules_per_image": each / (images_per_step or batch_size),
            "joules_per_step": None if images_per_step is None else each,
            "images_per_step": images_per_step,
        }
    )


def measure_loading(config: ExperimentConfig, batch_size: int, step_ms: float | None) -> DataLoading:
    """Times the config's own training loader. step_ms: of a micro-batch of as many images.

    Raises DataError for data that is not there or cannot be read.
    """
    batches = iter(build_loader(config, "train", batch_size=batch_size))
    took_ms: list[float] = []
    begin = last = time.perf_counter()
    # One epoch may be short: what it has is what is timed.
    for _ in batches:
        now = time.perf_counter()
        took_ms.append((now - last) * 1e3)
        last = now
        if len(took_ms) > LOADED_BATCHES or (len(took_ms) > LEAST_LOADED and now - begin > LOADING_SECONDS):
            break
    del batches  # ends its workers
    # The first waits for workers to start.
    later = took_ms[1:] or took_ms
    # Workers hand batches over in bursts: the rate is that of all, not the median's.
    rate = batch_size * len(later) * 1e3 / max(sum(later), 1e-6)
    return DataLoading(
        source="measured",
        data_source=config.data.resolved_source,
        batch_size=batch_size,
        num_workers=config.data.num_workers,
        num_batches=len(later),
        first_batch_ms=took_ms[0],
        median_ms=statistics.median(later),
        images_per_second=rate,
        step_ms=step_ms,
        waits=None if step_ms is None else batch_size * 1e3 / rate > step_ms,
    )
