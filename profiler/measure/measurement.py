"""What the measuring process tells: raw figures, before any statistics. Bytes, milliseconds. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from swinmr_profiling.profiler.measure.timing.latency import LatencySamples
from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.figures import Checkpointing, Precision
from swinmr_profiling.profiler.record.blocks.run_description import Environment


@dataclass(frozen=True)
class Opened:
    """device: as torch names it. environment: without the command line, which the command knows."""

    device: str
    environment: Environment


@dataclass(frozen=True)
class Built:
    """architecture: parameters, not counted yet. training_input_shape: of one sample. notes: on inputs, in words."""

    architecture: Architecture
    training_input_shape: list[int]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BatchMeasurement:
    """Forward passes of one batch size."""

    batch_size: int
    input_shape: list[int]
    latency: LatencySamples
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    cold_peak_bytes: int
    warm_peak_bytes: int
    reserved_peak_bytes: int | None
    memory_kind: str
    memory_is_exact: bool
    first_nonfinite_module: str | None
    attention: str | None = None

    @property
    def noise_bytes(self) -> int:
        """How far the memory of a batch size is not a matter of the network; 0 for an allocator's own counters.

        Resident memory holds code of libraries, loaded when it is first used, and heap that the C library keeps. What
        the runs leave behind, |after - before|, is such: the network holds as much as before.
        """
        return 0 if self.memory_is_exact else abs(self.after_bytes - self.before_bytes)

    @property
    def activation_bytes(self) -> int:
        """The peak less what was in use before the first forward (weights and inputs included there).

        Of resident memory, less the larger of before and after: what stayed was not the forward's.
        """
        in_use = self.before_bytes if self.memory_is_exact else max(self.before_bytes, self.after_bytes)
        return self.peak_bytes - in_use


@dataclass(frozen=True)
class MetricMeasurement:
    """One comparison of two images by a metric that is a network."""

    batch_size = 1
    input_shape: list[int]
    parameters: int
    macs: int
    latency: LatencySamples


@dataclass(frozen=True)
class DeviceMemory:
    """The device as this process finds it now, bytes.

    free: what the device has left. cached: what this process's allocator holds and nobody uses. usable: what the
    process may still hand out, the cached memory counted once.
    """

    free_bytes: int
    cached_bytes: int
    total_bytes: int

    @property
    def usable_bytes(self) -> int:
        return self.free_bytes + self.cached_bytes


@dataclass(frozen=True)
class AllocatorTroubles:
    """Since the process began: how often cached memory was given back to meet a request, and how often in vain."""

    retries: int
    out_of_memory: int


@dataclass(frozen=True)
class StepPeaks:
    """High-water marks since the last reset, bytes. None where this kind of device does not count it.

    allocated: whole blocks handed out (workspaces of libraries included). requested: what was asked for, before
    rounding. reserved: segments taken from the device.
    """

    allocated_bytes: int
    requested_bytes: int | None
    reserved_bytes: int | None


@dataclass(frozen=True)
class TrainingMeasurement:
    """Training steps of one batch size.

    Attributes:
        batch_size: samples of one micro-batch, per device. accumulation: micro-batches of a step.
        steps_run: steps in which the optimizer changed the weights. step_ms: all steps, overflowing ones included.
        before_bytes: in use before the first step (weights, loss networks, moving average).
        cold, warm: peaks of the first step and of the later ones. validation: of one batch of whole images; None where
            the step is the user's own, which says nothing of it.
        device_used_bytes: of all processes, None where the device is not asked.
        finite: whether every loss was a number (random inputs through random weights need not give one).
        opening_bytes: what the device lost when the process was opened; None where nobody can tell.
    """

    batch_size: int
    accumulation: int
    input_shape: list[int]
    validation_shape: list[int] | None
    precision: Precision
    checkpointing: Checkpointing
    patch_size: list[int] | None
    loss: str
    memory_kind: str
    steps_run: int
    step_ms: list[float]
    before_bytes: int
    cold: StepPeaks
    warm: StepPeaks
    validation: StepPeaks | None
    retries: int
    out_of_memory: int
    process_bytes: int | None
    device_used_bytes: int
    device_total_bytes: int
    reserved_at_end_bytes: int | None
    expandable_segments: bool | None
    finite: bool
    opening_bytes: int | None = None

    @property
    def allocated_bytes(self) -> int:
        """What the tensors of training and validation take at most."""
        return max(peaks.allocated_bytes for peaks in self.peaks)

    @property
    def peaks(self) -> list[StepPeaks]:
        """All that were measured."""
        return [peaks for peaks in (self.cold, self.warm, self.validation) if peaks is not None]

    @property
    def context_bytes(self) -> int | None:
        """What the process holds outside its allocator: its own total where NVML gives it, else what opening took."""
        if self.process_bytes is not None and self.reserved_at_end_bytes is not None:
            return max(self.process_bytes - self.reserved_at_end_bytes, 0)
        return self.opening_bytes
