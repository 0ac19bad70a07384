"""Probes of the training step, each in a process that nothing ran in before and nothing runs in afterwards.

The command's side: imports no torch and never opens a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES
from swinmr_profiling.profiler.isolation.worker_process import (
    LeavesNothing,
    Progress,
    WorkerError,
    WorkerProcess,
)
from swinmr_profiling.profiler.measure.machine.machine_state import nvml_used_bytes
from swinmr_profiling.profiler.measure.measurement import Built, DeviceMemory, Opened, TrainingMeasurement
from swinmr_profiling.profiler.record.device_memory import process_needs
from swinmr_profiling.profiler.record.limits import MIN_TRAINING_STEPS
from swinmr_profiling.profiler.record.search_record import MemoryNow, MemoryReadError, ProbeResult

# A probe takes seconds on a GPU; half an hour is for slow machines and large networks on a CPU.
PROBE_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class ProbeOptions:
    """config: in the setting that is to be trained. environment: variables of the processes (PYTORCH_ALLOC_CONF).

    assumed_context_bytes: what a process's CUDA context is taken for where NVML cannot tell, loaded kernels included.
    """

    config: ExperimentConfig
    device: str = "auto"
    steps: int = MIN_TRAINING_STEPS
    timeout_s: float = PROBE_TIMEOUT_S
    trust_config: bool = False
    environment: Mapping[str, str | None] | None = None
    gpu_uuid: str | None = None
    assumed_context_bytes: int = 0


class TrainingProbes(LeavesNothing):
    """The probes of a setting, one after the other."""

    def __init__(
        self,
        options: ProbeOptions,
        start: Callable[[Mapping[str, str | None] | None], WorkerProcess] = WorkerProcess,
        device_used_bytes: Callable[[str | None], int | None] = nvml_used_bytes,
    ) -> None:
        self.options = options
        self._start, self._device_used_bytes = start, device_used_bytes
        self._fresh: WorkerProcess | None = None
        self._context_bytes: int | None = None

    def memory(self) -> MemoryNow:
        """What the device has for the next probe, as that probe's own process finds it.

        A device without room for the process itself has no memory at all. Raises MemoryReadError.
        """
        try:
            now = self._ready().ask("device_memory", DeviceMemory, self.options.timeout_s)
        except WorkerError as failed:
            self.close()
            if failed.failure.possibly_memory or failed.failure.error == "OOM":
                return MemoryNow(0)
            raise MemoryReadError(failed.failure) from None
        # Nothing has run yet, so that no kernel is loaded.
        assumed = max(self.options.assumed_context_bytes - KERNELS_BYTES, 0)
        context = assumed if self._context_bytes is None else self._context_bytes
        return MemoryNow(now.free_bytes, now.cached_bytes, now.total_bytes, context)

    def measure(self, batch_size: int) -> TrainingMeasurement:
        """Measures one batch size and ends the process.

        Raises WorkerError, whose detail says in which step it happened, and RequestRefusedError.
        """
        stage = None

        def note(progress: Progress) -> None:
            nonlocal stage
            stage = progress.stage

        try:
            process = self._ready()
            options = self.options
            process.ask(
                "build",
                Built,
                options.timeout_s,
                config=options.config.model_dump(mode="json"),
                trust_config=options.trust_config,
                seed=options.config.system.seed,
            )
            measured = process.ask(
                "train",
                TrainingMeasurement,
                options.timeout_s,
                note,
                batch_size=batch_size,
                steps=options.steps,
            )
            return replace(measured, opening_bytes=self._context_bytes)
        except WorkerError as failed:
            failure = failed.failure
            if stage is not None:
                failure = replace(failure, detail=f"{failure.detail} (in training: {stage})")
            raise WorkerError(failure, failed.traceback) from None
        finally:
            self.close()

    def probe(self, batch_size: int) -> ProbeResult:
        """One trial of the search. Raises RequestRefusedError."""
        try:
            measured = self.measure(batch_size)
        except WorkerError as failed:
            return ProbeResult(batch_size, None, 0, failure=failed.failure)
        return ProbeResult(
            batch_size,
            needed_bytes(measured, self.options.assumed_context_bytes),
            measured.steps_run,
            retries=measured.retries,
            allocated_bytes=measured.allocated_bytes,
            measurement=measured,
        )

    def _ready(self) -> WorkerProcess:
        """The process of the next probe, opened on the device."""
        if self._fresh is None:
            before = self._device_used_bytes(self.options.gpu_uuid)
            self._fresh = self._start(self.options.environment)
            self._fresh.ask(
                "open",
                Opened,
                self.options.timeout_s,
                device=self.options.device,
                # The step takes its precision from the config.
                precision="fp32",
                threads=self.options.config.system.threads,
            )
            after = self._device_used_bytes(self.options.gpu_uuid)
            self._context_bytes = None
            if before is not None and after is not None and after > before:
                self._context_bytes = after - before
        return self._fresh

    def close(self) -> None:
        """Ends the process that waits, if there is one."""
        if self._fresh is not None:
            fresh, self._fresh = self._fresh, None
            with suppress(OSError):
                fresh.close()


def needed_bytes(measured: TrainingMeasurement, assumed_context_bytes: int = 0) -> int:
    """What the process takes from the device, of training and validation the larger; resident on a CPU.

    As a recommendation counts it: the driver's figure for the process, or context and what is reserved.
    """
    reserved = max(
        peaks.allocated_bytes if peaks.reserved_bytes is None else peaks.reserved_bytes
        for peaks in measured.peaks
    )
    return process_needs(reserved, measured.process_bytes, measured.context_bytes, assumed_context_bytes)
