"""The batch sizes, from small to large: what each should cost, which are left out, what each gave."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from swinmr_profiling.models.host_memory import available_bytes
from swinmr_profiling.profiler.isolation.measuring_session import MeasuringSession, measure_in_processes
from swinmr_profiling.profiler.isolation.worker_process import Progress, WorkerError
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy
from swinmr_profiling.profiler.record.blocks.batch import Expected, MeasuredBatch
from swinmr_profiling.profiler.record.failures import Failure, confirm_memory
from swinmr_profiling.profiler.record.units import MIB

DEFAULT_BATCH_SIZES = (1, 2, 4, 8, 16)
# On a CPU the default sweep of a large network would take an hour that nobody asked for.
DEFAULT_SWEEP_LIMIT_S = 120.0


class Ran(NamedTuple):
    """What a batch size that ran says of larger ones."""

    batch_size: int
    median_ms: float
    activation_bytes: int


@dataclass(frozen=True)
class SizeResult:
    """A measurement or a failure of one batch size, and what was expected of it."""

    batch_size: int
    expectation: Expected | None
    measurement: BatchMeasurement | None = None
    failure: Failure | None = None
    traceback: str | None = None


def expect(batch_size: int, largest: Ran | None) -> Expected | None:
    """What a batch size should cost by the largest one that ran: extrapolated linearly in the batch."""
    if largest is None:
        return None
    ratio = batch_size / largest.batch_size
    return Expected(
        source="extrapolated",
        from_batch=largest.batch_size,
        latency_ms=largest.median_ms * ratio,
        activation_bytes=round(largest.activation_bytes * ratio),
    )


class Sweep:
    """Measures sizes in ascending order; each size's failure is its own.

    After out of memory the larger sizes are skipped; after any other failure the sweep goes on.
    """

    def __init__(
        self,
        session: MeasuringSession,
        policy: LatencyPolicy,
        *,
        on_cpu: bool,
        limit_s: float | None,
        clock: Callable[[], float] = time.monotonic,
        available: Callable[[], int] = available_bytes,
    ) -> None:
        self.session, self.policy = session, policy
        self.on_cpu, self.limit_s = on_cpu, limit_s
        self.clock, self.available = clock, available
        self.largest: Ran | None = None
        self.out_of_memory_at: int | None = None
        self.started = clock()

    def measure(
        self,
        batch_size: int,
        on_start: Callable[[Expected | None], None] = lambda expectation: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_part: Callable[[SizeResult], None] = lambda part: None,
    ) -> SizeResult:
        """Measures one size, or says why not.

        on_start is called just before the first run, on_part with what the processes so far have measured
        before another one does.
        """
        expectation = expect(batch_size, self.largest)
        refusal = self._reason_to_skip(batch_size, expectation)
        if refusal is not None:
            return SizeResult(batch_size, expectation, failure=refusal)
        on_start(expectation)
        expected_ms = None if expectation is None else expectation.latency_ms
        try:
            measurement = measure_in_processes(
                self.session,
                batch_size,
                self.policy,
                expected_ms,
                on_progress,
                lambda part: on_part(SizeResult(batch_size, expectation, measurement=part)),
            )
        except WorkerError as failed:
            ran = None if self.largest is None else self.largest.batch_size
            failure = confirm_memory(failed.failure, ran if ran is not None and ran < batch_size else None)
            if failure.is_of_memory:
                self.out_of_memory_at = batch_size
            return SizeResult(batch_size, expectation, failure=failure, traceback=failed.traceback)
        median_ms = statistics.median(measurement.latency.samples_ms)
        self.note(Ran(batch_size, median_ms, measurement.activation_bytes))
        return SizeResult(batch_size, expectation, measurement=measurement)

    def note(self, ran: Ran) -> None:
        """Takes what ran, in this run or in the one it resumes, as the base of later expectations."""
        if self.largest is None or ran.batch_size >= self.largest.batch_size:
            self.largest = ran

    def note_block(self, block: MeasuredBatch) -> None:
        """Takes a block of an earlier, resumed run as the base of later expectations."""
        self.note(Ran(block.batch_size, block.timing.median_ms, block.memory.activation_bytes))

    def _reason_to_skip(self, batch_size: int, expectation: Expected | None) -> Failure | None:
        if self.out_of_memory_at is not None and batch_size > self.out_of_memory_at:
            detail = f"batch {self.out_of_memory_at} was out of memory"
            return Failure("skipped", detail)
        if expectation is None:
            return None
        if self.on_cpu:
            available = self.available()
            if expectation.activation_bytes > available:
                needs, has = expectation.activation_bytes / MIB, available / MIB
                detail = (
                    f"expected to need {needs:,.0f} MiB more by batch {expectation.from_batch}, and "
                    f"{has:,.0f} MiB of host memory are available"
                )
                # Larger sizes need more still: they are skipped for the same reason, each with its figure.
                return Failure("skipped", detail)
        if self.limit_s is not None:
            expected_s = expectation.latency_ms / 1000
            if self.clock() - self.started + expected_s > self.limit_s:
                detail = (
                    f"one run would take about {expected_s:,.0f} s and the default sweep on a CPU past "
                    f"{self.limit_s / 60:g} minutes: --batch-sizes {batch_size} measures it"
                )
                return Failure("skipped", detail)
        return None
