"""The measuring process over a whole run: started once, replaced when it died or can no longer be trusted.

And one batch size in several of them, one after the other, with what they gave as one measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import NoneType

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.isolation.worker_process import (
    LeavesNothing,
    Progress,
    RequestRefusedError,
    WorkerError,
    WorkerProcess,
)
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, Built, MetricMeasurement, Opened
from swinmr_profiling.profiler.measure.timing.latency import (
    DEFAULT_RUNS,
    DEFAULT_TIME_BUDGET_S,
    LatencyPolicy,
    LatencySamples,
    budget_note,
)
from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    CrossCheck,
    ModuleCosts,
    TrainingMacs,
)
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, Energy
from swinmr_profiling.profiler.record.blocks.figures import Precision

# A size that takes ten times what its smaller neighbour promised hangs; half an hour is for the first size,
# of which nothing is known, and for slow machines.
TIMEOUT_FLOOR_S = 1800.0
TIMEOUT_FACTOR = 10.0
# The weakest reason of any process is that of all: `precise` is what every process was.
STOP_REASONS = ("time_budget", "max_runs", "precise")
INTERRUPTED = "the run ended before the others"


@dataclass(frozen=True)
class MeasureOptions:
    """How the network is run: what `--device`, `--precision` and their like say."""

    device: str = "auto"
    precision: Precision = "fp32"
    channels_last: bool = False
    compile: bool = False
    num_runs: int | None = None
    warmup: int | None = None
    time_budget_s: float = DEFAULT_TIME_BUDGET_S
    timeout_s: float | None = None
    seed: int = 0
    threads: int | None = None
    trust_config: bool = False


class MeasuringSession(LeavesNothing):
    """Asks the measuring process, and starts a new one with the same network when that is needed."""

    def __init__(self, options: MeasureOptions, config: ExperimentConfig) -> None:
        self.options = options
        self.config = config
        self.process: WorkerProcess | None = None
        self._placed = False

    def open(self) -> Opened:
        """Starts the process. Raises RequestRefusedError, WorkerError."""
        self.close()
        self.process = WorkerProcess()
        self._placed = False
        options = self.options
        return self.process.ask(
            "open", Opened, device=options.device, precision=options.precision, threads=options.threads
        )

    def build(self, *, runs: bool = True) -> Built:
        """Builds the network, with weights of the precision that is measured. runs: it is run, and so has to fit."""
        config = self.config.model_dump(mode="json")
        if (config["system"]["mixed_precision"] == "pure_bf16") != (self.options.precision == "pure_bf16"):
            config["system"]["mixed_precision"] = False
        return self._require().ask(
            "build",
            Built,
            config=config,
            trust_config=self.options.trust_config,
            seed=self.options.seed,
            data="always" if runs else "if it fits",
        )

    def count(self) -> Architecture:
        """The network's architecture with the multiply-adds of one image."""
        return self._require().ask("count", Architecture, timeout_s=self.timeout_s(None))

    def count_training(self) -> TrainingMacs:
        """Counts the training step."""
        return self._require().ask("count_training", TrainingMacs, timeout_s=self.timeout_s(None))

    def cross_check(self, size: str, counters: list[str], keep: bool) -> list[CrossCheck]:
        """What other counters say, each asked in a process of its own; keep: or in an earlier run."""
        return self._require().ask("cross_check", list[CrossCheck], size=size, counters=counters, keep=keep)

    def measure(
        self,
        batch_size: int,
        policy: LatencyPolicy,
        expected_ms: float | None,
        on_progress: Callable[[Progress], None],
    ) -> BatchMeasurement:
        """Measures one batch size, in a new process if the last one is gone. Raises WorkerError."""
        try:
            return self._place().ask(
                "measure",
                BatchMeasurement,
                timeout_s=self.timeout_s(expected_ms),
                on_progress=on_progress,
                batch_size=batch_size,
                expected_ms=expected_ms,
                **asdict(policy),
            )
        except WorkerError as failed:
            if failed.failure.needs_new_process:
                self.close()
            raise

    def measure_modules(self, macs_by_path: dict[str, int]) -> ModuleCosts:
        """Measures each module of the network. Raises WorkerError."""
        return self._place().ask(
            "measure_modules", ModuleCosts, timeout_s=self.timeout_s(None), macs_by_path=macs_by_path
        )

    def trace_forward(self, batch_size: int, file: Path, *, compress: bool) -> int:
        """Writes one measured pass for Perfetto; the number of its events. Raises WorkerError."""
        return self._place().ask(
            "trace_forward",
            int,
            timeout_s=self.timeout_s(None),
            batch_size=batch_size,
            file=str(file.resolve()),
            compress=compress,
        )

    def energy(self, batch_size: int, training_batch: int | None) -> Energy:
        """Energy of the forward pass, and of training. Raises WorkerError; RequestRefusedError without a counter."""
        return self._place().ask(
            "energy",
            Energy,
            timeout_s=self.timeout_s(None),
            batch_size=batch_size,
            training_batch=training_batch,
        )

    def loading(self, batch_size: int, step_ms: float | None) -> DataLoading:
        """Times the config's own data loader. Raises WorkerError; RequestRefusedError for data that is not there."""
        return self._revive().ask(
            "loading",
            DataLoading,
            timeout_s=self.timeout_s(None),
            config=self.config.model_dump(mode="json"),
            batch_size=batch_size,
            step_ms=step_ms,
        )

    def _place(self) -> WorkerProcess:
        """A process that is there, with the network on the device."""
        process, options = self._revive(), self.options
        if not self._placed:
            process.ask("place", NoneType, channels_last=options.channels_last, compile=options.compile)
            self._placed = True
        return process

    def lpips(self, image_hw: list[int], policy: LatencyPolicy) -> MetricMeasurement:
        """Measures one LPIPS comparison of two images."""
        return self._revive().ask(
            "lpips",
            MetricMeasurement,
            timeout_s=self.timeout_s(None),
            image_hw=image_hw,
            **asdict(policy),
        )

    def _revive(self) -> WorkerProcess:
        """A process that is there, with the network built."""
        if self.process is None or not self.process.alive:
            self.open()
            self.build()
        return self._require()

    def timeout_s(self, expected_ms: float | None) -> float:
        """Seconds after which a size counts as hung."""
        if self.options.timeout_s is not None:
            return self.options.timeout_s
        runs = (self.options.num_runs or 1) + (self.options.warmup or 0)
        expected_s = self.options.time_budget_s + runs * (expected_ms or 0.0) / 1000
        return max(TIMEOUT_FLOOR_S, TIMEOUT_FACTOR * expected_s)

    def _require(self) -> WorkerProcess:
        assert self.process is not None, "open() comes first"
        return self.process

    def kill(self) -> None:
        """Ends the measuring process at once, from a signal handler: no waiting, no closing."""
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        """Ends the measuring process; the next measurement starts another."""
        if self.process is not None:
            self.process.close()
            self.process = None


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
    samples = [sample for latency in latencies for sample in latency.samples_ms]
    reasons = {latency.stop_reason for latency in latencies}
    stop_reason = next(reason for reason in STOP_REASONS if reason in reasons)
    notes = shared_notes([latency.notes for latency in latencies])
    if stop_reason == "time_budget" and len(samples) < DEFAULT_RUNS:
        notes.insert(0, budget_note(len(samples), policy.time_budget_s))
    if missing is not None:
        notes.insert(0, f"{len(parts)} of {wanted} processes: {missing}")
    warmup_ms = [sample for latency in latencies for sample in latency.warmup_ms]
    return replace(
        fullest,
        first_nonfinite_module=next(filter(None, (part.first_nonfinite_module for part in parts)), None),
        latency=LatencySamples(
            samples,
            warmup_ms,
            stop_reason,
            notes,
            runs_by_process=[len(latency.samples_ms) for latency in latencies],
        ),
    )


def shared_notes(notes_by_process: Sequence[Sequence[str]]) -> list[str]:
    """Each note once; of what not every process has, which ones have it."""
    found = []
    for note in dict.fromkeys(note for notes in notes_by_process for note in notes):
        having = [str(index) for index, notes in enumerate(notes_by_process, 1) if note in notes]
        found.append(note if len(having) == len(notes_by_process) else f"process {', '.join(having)}: {note}")
    return found
