"""One batch size in several measuring processes, one after the other, and what they gave as one measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from swinmr_profiling.profiler.isolation.measuring_session import MeasuringSession
from swinmr_profiling.profiler.isolation.worker_process import Progress, RequestRefusedError, WorkerError
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement
from swinmr_profiling.profiler.measure.timing.latency import (
    DEFAULT_RUNS,
    LatencyPolicy,
    LatencySamples,
    budget_note,
)

# The weakest reason of any process is that of all: `precise` is what every process was.
STOP_REASONS = ("time_budget", "max_runs", "precise")
INTERRUPTED = "the run ended before the others"


def measure_in_processes(
    session: MeasuringSession,
    batch_size: int,
    policy: LatencyPolicy,
    expected_ms: float | None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_part: Callable[[BatchMeasurement], None] = lambda part: None,
) -> BatchMeasurement:
    """The raw measurement of one size: of one process, or of as many as the first one asks for.

    on_part is called before each further process with what there is so far. Raises WorkerError when the first
    process fails; a failure of a later one is a note.
    """
    parts = [session.measure(batch_size, policy, expected_ms, on_progress)]
    wanted = 1 + parts[0].latency.further_processes
    if wanted == 1:
        return parts[0]
    missing = None
    while len(parts) < wanted and missing is None:
        on_part(combine(parts, wanted, policy, INTERRUPTED))
        try:
            # The next measurement starts a new one.
            session.close()
            # A process of its own knows nothing of the size and is warmed up anew: there is no expectation.
            parts.append(session.measure(batch_size, policy.share(), None, on_progress))
        except WorkerError as failed:
            missing = f"the next one failed ({failed.failure.error}: {failed.failure.detail})"
        except RequestRefusedError as refused:
            missing = f"the next one was refused: {refused}"
    if missing is not None:
        # It may have died half built.
        session.close()
    return combine(parts, wanted, policy, missing)


def combine(
    parts: Sequence[BatchMeasurement], wanted: int, policy: LatencyPolicy, missing: str | None
) -> BatchMeasurement:
    """One raw measurement from those of several processes, in the order they ran.

    missing: why there are fewer than `wanted`. All memory figures are those of the process with the highest
    peak: a peak and what was in use before it are of one process, or their difference means nothing.
    """
    latencies = [part.latency for part in parts]
    fullest = max(parts, key=lambda part: part.peak_bytes)
    culprits = [part.first_nonfinite_module for part in parts]
    samples = [sample for latency in latencies for sample in latency.samples_ms]
    reasons = {latency.stop_reason for latency in latencies}
    stop_reason = next(reason for reason in STOP_REASONS if reason in reasons)
    notes = shared_notes([latency.notes for latency in latencies])
    if stop_reason == "time_budget" and len(samples) < DEFAULT_RUNS:
        notes.insert(0, budget_note(len(samples), policy.time_budget_s))
    if missing is not None:
        notes.insert(0, f"{len(parts)} of {wanted} processes: {missing}")
    warmup_ms = [sample for latency in latencies for sample in latency.warmup_ms]
    runs = [len(latency.samples_ms) for latency in latencies]
    return replace(
        fullest,
        first_nonfinite_module=next((culprit for culprit in culprits if culprit is not None), None),
        latency=LatencySamples(samples, warmup_ms, stop_reason, notes, runs_by_process=runs),
    )


def shared_notes(notes_by_process: Sequence[Sequence[str]]) -> list[str]:
    """Each note once; of what not every process has, which ones have it."""
    found = []
    for note in dict.fromkeys(note for notes in notes_by_process for note in notes):
        having = [str(index) for index, notes in enumerate(notes_by_process, 1) if note in notes]
        everybody = len(having) == len(notes_by_process)
        found.append(note if everybody else f"process {', '.join(having)}: {note}")
    return found
