"""Probes of the training step, each in a process that nothing ran in before and nothing runs in afterwards.

The command's side: imports no torch and never opens a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES
from swinmr_profiling.profiler.isolation.worker_process import WorkerError, WorkerProcess
from swinmr_profiling.profiler.measure.machine_state import nvml_used_bytes
from swinmr_profiling.profiler.measure.training_blocks import context_bytes
from swinmr_profiling.profiler.record.device_memory import process_needs
from swinmr_profiling.profiler.record.failures import Failure, FailureKind
from swinmr_profiling.profiler.record.search_record import MemoryNow, MemoryReadError, ProbeResult

DEFAULT_TRAINING_STEPS = 3
# A probe takes seconds on a GPU; half an hour is for slow machines and large networks on a CPU.
PROBE_TIMEOUT_S = 1800.0


class Asks(Protocol):
    """What the probes need of a process."""

    def ask(
        self,
        do: str,
        timeout_s: float | None = None,
        on_event: Callable[[dict[str, Any]], None] = ...,
        **arguments: Any,
    ) -> dict[str, Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class ProbeOptions:
    """config: the resolved config as JSON. environment: variables of the processes (PYTORCH_ALLOC_CONF).

    assumed_context_bytes: what a process's CUDA context is taken for where NVML cannot tell, loaded kernels included.
    """

    config: dict[str, Any]
    device: str = "auto"
    steps: int = DEFAULT_TRAINING_STEPS
    timeout_s: float = PROBE_TIMEOUT_S
    trust_config: bool = False
    environment: Mapping[str, str | None] | None = None
    gpu_uuid: str | None = None
    assumed_context_bytes: int = 0


class TrainingProbes:
    """Use as a context manager: leaving it leaves no process behind."""

    def __init__(
        self,
        options: ProbeOptions,
        start: Callable[[Mapping[str, str | None] | None], Asks] = WorkerProcess,
        device_used_bytes: Callable[[str | None], int | None] = nvml_used_bytes,
    ) -> None:
        self.options = options
        self._start, self._device_used_bytes = start, device_used_bytes
        self._fresh: Asks | None = None
        self._context_bytes: int | None = None

    def memory(self) -> MemoryNow:
        """What the device has for the next probe, as that probe's own process finds it.

        A device without room for the process itself has no memory at all. Raises MemoryReadError.
        """
        try:
            answer = self._ready().ask("device_memory", timeout_s=self.options.timeout_s)
        except WorkerError as failed:
            self.close()
            if failed.failure.possibly_memory or failed.failure.error is FailureKind.OOM:
                return MemoryNow(0)
            raise MemoryReadError(failed.failure) from None
        context = self._context_bytes
        if context is None:
            # Nothing has run yet, so that no kernel is loaded.
            context = max(self.options.assumed_context_bytes - KERNELS_BYTES, 0)
        return MemoryNow(answer["free_bytes"], answer["cached_bytes"], answer["total_bytes"], context)

    def measure(self, batch_size: int) -> dict[str, Any]:
        """Measures one batch size and ends the process.

        Raises WorkerError, whose detail says in which step it happened, and RequestRefusedError.
        """
        stage = None

        def note(event: dict[str, Any]) -> None:
            nonlocal stage
            stage = event.get("stage", stage)

        try:
            process = self._ready()
            options = self.options
            process.ask(
                "build",
                timeout_s=options.timeout_s,
                config=options.config,
                trust_config=options.trust_config,
                seed=options.config["system"]["seed"],
            )
            measured = process.ask(
                "train",
                timeout_s=options.timeout_s,
                on_event=note,
                batch_size=batch_size,
                steps=options.steps,
            )
            return {**measured, "context_bytes": self._context_bytes}
        except WorkerError as failed:
            raise WorkerError(_located(failed.failure, stage), failed.traceback) from None
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
            measured["steps_run"],
            retries=measured["retries"],
            allocated_bytes=allocated_bytes(measured),
            measurement=measured,
        )

    def _ready(self) -> Asks:
        """The process of the next probe, opened on the device."""
        if self._fresh is None:
            before = self._device_used_bytes(self.options.gpu_uuid)
            self._fresh = self._start(self.options.environment)
            self._fresh.ask(
                "open",
                timeout_s=self.options.timeout_s,
                device=self.options.device,
                # The step takes its precision from the config.
                precision="fp32",
                threads=self.options.config["system"]["threads"],
            )
            after = self._device_used_bytes(self.options.gpu_uuid)
            known = before is not None and after is not None and after > before
            self._context_bytes = after - before if known else None
        return self._fresh

    def close(self) -> None:
        """Ends the process that waits, if there is one."""
        if self._fresh is not None:
            fresh, self._fresh = self._fresh, None
            with suppress(OSError):
                fresh.close()

    def __enter__(self) -> TrainingProbes:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def needed_bytes(measured: dict[str, Any], assumed_context_bytes: int = 0) -> int:
    """What the process takes from the device, of training and validation the larger; resident on a CPU.

    As a recommendation counts it: the driver's figure for the process, or context and what is reserved.
    """
    peaks = (measured["cold"], measured["warm"], measured["validation"])
    reserved = max(
        peak["allocated_bytes"] if peak["reserved_bytes"] is None else peak["reserved_bytes"]
        for peak in peaks
    )
    return process_needs(reserved, measured["process_bytes"], context_bytes(measured), assumed_context_bytes)


def allocated_bytes(measured: dict[str, Any]) -> int:
    """What the tensors of training and validation take at most."""
    return max(measured[part]["allocated_bytes"] for part in ("cold", "warm", "validation"))


def _located(failure: Failure, stage: str | None) -> Failure:
    return failure if stage is None else replace(failure, detail=f"{failure.detail} (in training: {stage})")
