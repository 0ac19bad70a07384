"""The run: what only a GPU can tell comes first, each combination in a process of its own, within the time there is.

Predictions need no GPU: they are made beside the measurements where there are cores for both, else after them.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from types import NoneType
from typing import Literal, TypeVar

from pydantic import BaseModel

from swinmr_profiling.profiler.batch_size.search import search_batch
from swinmr_profiling.profiler.gpu_check.combinations import ABSURD_BATCH, ALLOCATOR_VARIABLES, Combination
from swinmr_profiling.profiler.gpu_check.convolutions import ConvolutionsRequest
from swinmr_profiling.profiler.gpu_check.machine import MachineRequest, workspace_row
from swinmr_profiling.profiler.gpu_check.measured import inference_figures, ratios, summary, training_figures
from swinmr_profiling.profiler.gpu_check.predictions import (
    TABLE_SIZES,
    PredictionRequest,
    interpolated,
    predicted,
)
from swinmr_profiling.profiler.gpu_check.record import (
    ConvolutionCosts,
    GpuCheckRecord,
    LibraryCosts,
    Measured,
    NotRun,
    PredictedSize,
    Prediction,
    Reference,
    Row,
    Workspaces,
)
from swinmr_profiling.profiler.gpu_check.reference import Network, ReferenceRequest
from swinmr_profiling.profiler.gpu_check.subprocesses import Answer, PartFailedError, ask_module
from swinmr_profiling.profiler.isolation.training_probes import ProbeOptions, TrainingProbes
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError, WorkerProcess
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, Built, DeviceMemory, Opened
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy
from swinmr_profiling.profiler.record.blocks.run_description import Gpu

# Of the free memory: what a combination may be predicted to take, so that a wrong prediction still runs.
SAFE_SHARE = 0.85
# The combination that must fail asks for this much more than there is.
CERTAIN_SHARE = 1.3
MACHINE_TIMEOUT_S, PREDICTION_TIMEOUT_S, REFERENCE_TIMEOUT_S = 60.0, 120.0, 60.0
# Each trace of a large network takes a core and about 1 GB.
CORES_PER_PREDICTION, MAX_PREDICTIONS = 2, 8
# Fewer cores are left to what is measured.
LEAST_CORES_BESIDE = 4
CONVOLUTIONS_TIMEOUT_S = 60.0
# What is worth waiting for a prediction that is being made: the batch is chosen by it.
NEED_PREDICTION = ("out_of_memory", "search")
INFERENCE_RUNS, INFERENCE_WARMUP = 10, 3
# Before a trial of the search is begun.
TRIAL_S = 30.0
Part = TypeVar("Part")
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


class GpuCheck:
    """One check. `record` is what is known so far; `on_change` is called whenever it grew."""

    def __init__(
        self,
        combinations: list[Combination],
        *,
        device: str,
        time_budget_s: float,
        reference: Network,
        on_change: Callable[[GpuCheckRecord], object] = lambda record: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """device: "cuda:0", or "cpu" for a dry run. reference: the network that is compared with another's."""
        self.combinations, self.device = combinations, device
        self.reference, self.on_change, self.clock = reference, on_change, clock
        self.started = clock()
        self.gpu: Gpu | None = None
        self.torch_version = ""
        self.predictions: dict[str, Future[Prediction | str]] = {}
        self.record = GpuCheckRecord(dry_run=device == "cpu", time_budget_s=time_budget_s, combinations=[])

    @property
    def left_s(self) -> float:
        return self.record.time_budget_s - (self.clock() - self.started)

    def run(self) -> GpuCheckRecord:
        """Does as much as the time allows; what is left out says so. Raises RequestRefusedError without the device."""
        self._open()
        self.record.convolutions = _or_why_not(self._measured_convolutions)
        self._changed()
        self.record.workspaces = _or_why_not(self._measured_workspaces)
        self._changed()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        beside = cores >= LEAST_CORES_BESIDE
        workers = min(max(cores // CORES_PER_PREDICTION - beside, 1), MAX_PREDICTIONS)
        with ThreadPoolExecutor(workers) as pool:
            if beside:
                self._predict(pool)
            for combination in self.combinations:
                self.record.combinations.append(self._row(combination))
                self._changed()
            if not beside:
                self._predict(pool)
            self._compare_with_predictions()
        self.record.reference = _or_why_not(self._compared_with_reference)
        self.record.took_s = self.clock() - self.started
        self._changed()
        return self.record

    def _changed(self) -> None:
        self.record.summary = summary(self.record.combinations)
        self.on_change(self.record)

    def _open(self) -> None:
        with WorkerProcess(environment=dict.fromkeys(ALLOCATOR_VARIABLES)) as process:
            opened = process.ask(
                "open", Opened, MACHINE_TIMEOUT_S, device=self.device, precision="fp32", threads=None
            )
            memory = process.ask("device_memory", DeviceMemory, MACHINE_TIMEOUT_S)
        self.device, self.torch_version = opened.device, opened.environment.torch_version
        self.gpu = opened.environment.gpu
        self.record.environment, self.record.usable_bytes = opened.environment, memory.usable_bytes
        self._changed()

    def _asked(
        self,
        part: str,
        request: BaseModel,
        answer: type[Answer],
        timeout_s: float,
        environment: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """What a module of this room answers in a process of its own. Raises PartFailedError."""
        module = f"swinmr_profiling.profiler.gpu_check.{part}"
        return ask_module(module, request, answer, min(timeout_s, self.left_s), environment)

    def _measured_workspaces(self) -> Workspaces | NotRun:
        gpu = self.gpu
        if gpu is None:
            return NotRun(status="not run", reason="there is no GPU")

        def measured(order: Literal["plain_first", "bias_first"]) -> LibraryCosts:
            return self._asked(
                "machine",
                MachineRequest(gpu_uuid=gpu.uuid, device=self.device, order=order),
                LibraryCosts,
                MACHINE_TIMEOUT_S,
                {"CUBLAS_WORKSPACE_CONFIG": None, **dict.fromkeys(ALLOCATOR_VARIABLES)},
            )

        plain_first, bias_first = measured("plain_first"), measured("bias_first")
        row = workspace_row(plain_first, bias_first, gpu, self.torch_version)
        return Workspaces(status="measured", row=row, plain_first=plain_first, bias_first=bias_first)

    def _measured_convolutions(self) -> ConvolutionCosts | NotRun:
        """The question that predictions of 16-bit convolutions wait for: is the algorithm another without benchmark?"""
        if self.gpu is None:
            return NotRun(status="not run", reason="there is no GPU")
        request, variables = ConvolutionsRequest(device=self.device), dict.fromkeys(ALLOCATOR_VARIABLES)
        return self._asked("convolutions", request, ConvolutionCosts, CONVOLUTIONS_TIMEOUT_S, variables)

    def _predict(self, pool: ThreadPoolExecutor) -> None:
        """Begins the prediction of each network, once for all its combinations."""
        for combination in self.combinations:
            if _network(combination) not in self.predictions:
                self.predictions[_network(combination)] = pool.submit(self._predict_one, combination)

    def _prediction_so_far(self, combination: Combination) -> Prediction | str:
        made = self.predictions.get(_network(combination))
        if made is None or not (made.done() or combination.mode in NEED_PREDICTION):
            return "not made yet"
        return made.result()

    def _compare_with_predictions(self) -> None:
        for row, combination in zip(self.record.combinations, self.combinations, strict=True):
            prediction = self.predictions[_network(combination)].result()
            if row.batch_size is not None and combination.mode != "search":
                row.predicted = predicted(prediction, row.batch_size, combination.allocator)
                row.ratios = ratios(row.measured, row.predicted)
            self._changed()

    def _predict_one(self, combination: Combination) -> Prediction | str:
        """The prediction, or why there is none."""
        if (missing := _missing(combination)) is not None:
            return missing
        sizes = {c.batch_size for c in self.combinations if _network(c) == _network(combination)}
        request = PredictionRequest(
            config=combination.config,
            mode="inference" if combination.mode == "inference" else "training",
            sizes=sorted({size for size in sizes if size is not None} | set(TABLE_SIZES)),
            torch_version=self.torch_version,
            compute_capability=None if self.gpu is None else self.gpu.compute_capability,
            trust_config=combination.trust_config,
        )
        if self.left_s < 1:
            return "no time was left"
        try:
            return self._asked("predictions", request, Prediction, PREDICTION_TIMEOUT_S, NO_GPU)
        except PartFailedError as error:
            return str(error)

    def _row(self, combination: Combination) -> Row:
        prediction = self._prediction_so_far(combination)
        sizes = {} if isinstance(prediction, str) else prediction.sizes
        batch_size = self._batch(combination, sizes)
        row = Row(
            name=combination.name,
            mode=combination.mode,
            precision=combination.precision,
            checkpointing=combination.config.training.checkpointing_kind,
            allocator=combination.allocator,
            requested_batch_size=combination.batch_size,
            batch_size=batch_size,
            predicted=predicted(prediction, batch_size, combination.allocator),
            measured=None,
            ratios=None,
            status="not run",
        )
        row.reason = _missing(combination)
        if row.reason is None and self.left_s < combination.takes_s:
            row.reason = f"{max(self.left_s, 0):.0f} s are left, and it takes about {combination.takes_s:.0f}"
        if row.reason is not None:
            return row
        started = self.clock()
        row = row.model_copy(update={"status": "measured"})
        try:
            self._measure_what_fits(row, combination, batch_size, sizes)
        except WorkerError as failed:
            oom = failed.failure.error == "OOM"
            row.status, row.reason = failed.failure.error, failed.failure.detail
            row.as_expected = oom and combination.mode == "out_of_memory"
        except RequestRefusedError as error:
            row.status, row.reason = "not run", str(error)
        row.took_s = self.clock() - started
        row.ratios = ratios(row.measured, row.predicted)
        return row

    def _measure_what_fits(
        self, row: Row, combination: Combination, batch_size: int, table: Mapping[int, PredictedSize]
    ) -> None:
        """Half the batch, and half of that, where no prediction said beforehand that it is too large."""
        while True:
            row.batch_size = batch_size
            try:
                return self._measure(row, combination, batch_size, table)
            except WorkerError as failed:
                halved = combination.mode in ("training", "inference") and batch_size > 1
                is_oom = failed.failure.error == "OOM"
                if table or not (is_oom and halved and self.left_s >= combination.takes_s):
                    raise
                batch_size //= 2

    def _batch(self, combination: Combination, table: Mapping[int, PredictedSize]) -> int:
        """The batch wished for, or the largest of the table that is safely predicted to fit, where it is known yet."""
        sizes = {size: row.of(combination.allocator).peak_reserved_bytes for size, row in table.items()}
        usable_bytes = self.record.usable_bytes
        if combination.mode == "out_of_memory":
            certain = [size for size, needed in sizes.items() if needed > usable_bytes * CERTAIN_SHARE]
            return combination.batch_size or min(certain, default=max(sizes, default=ABSURD_BATCH))
        wish = combination.batch_size or 1
        if wish not in sizes or sizes[wish] <= usable_bytes * SAFE_SHARE:
            return wish
        safe = [size for size, needed in sizes.items() if size < wish and needed <= usable_bytes * SAFE_SHARE]
        return max(safe, default=1)

    def _measure(
        self, row: Row, combination: Combination, batch_size: int, table: Mapping[int, PredictedSize]
    ) -> None:
        timeout_s = min(combination.timeout_s, self.left_s)
        if combination.mode == "inference":
            row.measured = self._infer(combination, batch_size, timeout_s)
            return
        options = ProbeOptions(
            config=combination.config,
            device=self.device,
            timeout_s=timeout_s,
            trust_config=combination.trust_config,
            environment=combination.variables,
            gpu_uuid=None if self.gpu is None else self.gpu.uuid,
        )
        with TrainingProbes(options) as probes:
            if combination.mode == "search":
                self._search(row, combination, probes, table)
                return
            row.measured = training_figures(probes.measure(batch_size))
        if combination.mode == "out_of_memory":
            row.as_expected, row.reason = False, "it ran, and should have been out of memory"

    def _search(
        self,
        row: Row,
        combination: Combination,
        probes: TrainingProbes,
        table: Mapping[int, PredictedSize],
    ) -> None:
        reserved = interpolated(table, combination.allocator)
        result = search_batch(
            probes.probe,
            reserved.reserved_bytes if len(table) > 1 else None,
            probes.memory,
            requested=combination.batch_size,
            may_go_on=lambda: self.left_s > TRIAL_S,
        )
        row.search, row.batch_size = result, result.batch_size
        if result.batch_size is None:
            row.status, row.reason = result.outcome, result.reason
        else:
            row.measured, row.predicted = training_figures(result.measurements[result.batch_size]), None

    def _infer(self, combination: Combination, batch_size: int, timeout_s: float) -> Measured:
        config, trust = combination.config, combination.trust_config
        with WorkerProcess(environment=combination.variables) as process:
            precision = combination.precision
            process.ask("open", Opened, timeout_s, device=self.device, precision=precision, threads=None)
            raw, seed = config.model_dump(mode="json"), config.system.seed
            process.ask("build", Built, timeout_s, config=raw, trust_config=trust, seed=seed)
            process.ask("place", NoneType, timeout_s, channels_last=False, compile=False)
            answer = process.ask(
                "measure",
                BatchMeasurement,
                timeout_s,
                batch_size=batch_size,
                expected_ms=None,
                **asdict(LatencyPolicy(INFERENCE_RUNS, INFERENCE_WARMUP)),
            )
        return inference_figures(answer)

    def _compared_with_reference(self) -> Reference | NotRun:
        if self.left_s < REFERENCE_TIMEOUT_S / 2:
            return NotRun(status="not run", reason=f"{self.left_s:.0f} s are left")
        request = ReferenceRequest(network=self.reference, device=self.device)
        return self._asked("reference", request, Reference, REFERENCE_TIMEOUT_S)


def _or_why_not(part: Callable[[], Part | NotRun]) -> Part | NotRun:
    try:
        return part()
    except PartFailedError as error:
        return NotRun(status="not run", reason=str(error))


def _network(combination: Combination) -> str:
    """What has one prediction: the config, and whether it trains."""
    return f"{combination.mode == 'inference'} {combination.config}"


def _missing(combination: Combination) -> str | None:
    missing = [name for name in combination.packages if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else None
