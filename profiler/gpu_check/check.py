"""The run: predictions first, then each combination in a process of its own, within the time there is."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import NoneType
from typing import Any

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.batch_size.search import search_batch
from swinmr_profiling.profiler.gpu_check.combinations import ALLOCATOR_VARIABLES, Combination
from swinmr_profiling.profiler.gpu_check.machine import workspace_row
from swinmr_profiling.profiler.gpu_check.measured import inference_figures, ratios, summary, training_figures
from swinmr_profiling.profiler.gpu_check.predictions import TABLE_SIZES, bytes_at, needed_bytes
from swinmr_profiling.profiler.gpu_check.subprocesses import PartFailedError, ask_module
from swinmr_profiling.profiler.isolation.training_probes import ProbeOptions, TrainingProbes
from swinmr_profiling.profiler.isolation.worker import Built, Opened
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError, WorkerProcess
from swinmr_profiling.profiler.measure.latency import LatencyPolicy
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, DeviceMemory
from swinmr_profiling.profiler.record.failures import FailureKind

# Of the free memory: what a combination may be predicted to take, so that a wrong prediction still runs.
SAFE_SHARE = 0.85
# The combination that must fail asks for this much more than there is.
CERTAIN_SHARE = 1.3
MACHINE_TIMEOUT_S, PREDICTION_TIMEOUT_S, REFERENCE_TIMEOUT_S = 60.0, 120.0, 60.0
# Each trace of a large network takes a core and about 1 GB.
CORES_PER_PREDICTION, MAX_PREDICTIONS = 2, 8
INFERENCE_RUNS, INFERENCE_WARMUP = 10, 3
# Before a trial of the search is begun.
TRIAL_S = 30.0
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


class GpuCheck:
    """One check. `content` is what is known so far; `on_change` is called whenever it grew."""

    def __init__(
        self,
        combinations: list[Combination],
        *,
        device: str,
        time_budget_s: float,
        reference: dict[str, Any],
        on_change: Callable[[dict[str, Any]], None] = lambda content: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """device: "cuda:0", or "cpu" for a dry run. reference: what `gpu_check.reference` takes, but the device."""
        self.combinations, self.device = combinations, device
        self.reference, self.on_change, self.clock = reference, on_change, clock
        self.started = clock()
        self.time_budget_s = time_budget_s
        self.gpu: dict[str, Any] | None = None
        self.usable_bytes = 0
        self.predictions: dict[int, dict[str, Any]] = {}
        self.content: dict[str, Any] = {
            "schema_version": 1,
            "dry_run": device == "cpu",
            "time_budget_s": time_budget_s,
            "environment": None,
            "workspaces": None,
            "combinations": [],
            "reference": None,
            "summary": None,
        }

    @property
    def left_s(self) -> float:
        return self.time_budget_s - (self.clock() - self.started)

    def run(self) -> dict[str, Any]:
        """Does as much as the time allows; what is left out says so. Raises RequestRefusedError without the device."""
        self._open()
        self._measure_workspaces()
        self._predict()
        for place, combination in enumerate(self.combinations):
            self.content["combinations"].append(self._row(place, combination))
            self._changed()
        self._compare_with_reference()
        self.content["took_s"] = self.clock() - self.started
        self._changed()
        return self.content

    def _changed(self) -> None:
        self.content["summary"] = summary(self.content["combinations"])
        self.on_change(self.content)

    def _open(self) -> None:
        with WorkerProcess(environment=dict.fromkeys(ALLOCATOR_VARIABLES)) as process:
            opened = process.ask(
                "open", Opened, MACHINE_TIMEOUT_S, device=self.device, precision="fp32", threads=None
            )
            self.usable_bytes = process.ask("device_memory", DeviceMemory, MACHINE_TIMEOUT_S).usable_bytes
        self.device, self.torch_version = opened.device, opened.environment.torch_version
        environment = opened.environment.to_json()
        del environment["command_line"]  # the command's, which writes it elsewhere
        self.gpu = environment["gpu"]
        self.content["environment"] = {**environment, "usable_bytes": self.usable_bytes}
        self._changed()

    def _measure_workspaces(self) -> None:
        if self.gpu is None:
            self.content["workspaces"] = {"status": "not run", "reason": "there is no GPU"}
            return
        request = {"gpu_uuid": self.gpu["uuid"], "device": self.device}
        try:
            found = {
                order: ask_module(
                    "swinmr_profiling.profiler.gpu_check.machine",
                    {**request, "order": order},
                    min(MACHINE_TIMEOUT_S, self.left_s),
                    {"CUBLAS_WORKSPACE_CONFIG": None, **dict.fromkeys(ALLOCATOR_VARIABLES)},
                )
                for order in ("plain_first", "bias_first")
            }
            row = workspace_row(found["plain_first"], found["bias_first"], self.gpu, self.torch_version)
            self.content["workspaces"] = {"status": "measured", "row": row, **found}
        except PartFailedError as error:
            self.content["workspaces"] = {"status": "not run", "reason": str(error)}
        self._changed()

    def _predict(self) -> None:
        """Each network once, for all its combinations; before anything is measured, so that nothing disturbs it."""
        first_of: dict[str, int] = {}
        for place, combination in enumerate(self.combinations):
            first_of.setdefault(_network(combination), place)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(max(cores // CORES_PER_PREDICTION, 1), MAX_PREDICTIONS)
        with ThreadPoolExecutor(workers) as pool:
            made = dict(zip(first_of, pool.map(self._predict_one, first_of.values()), strict=True))
        self.predictions = {
            place: made[_network(combination)] for place, combination in enumerate(self.combinations)
        }

    def _predict_one(self, place: int) -> dict[str, Any]:
        combination = self.combinations[place]
        missing = _missing(combination)
        if missing is not None:
            return {"failed": missing}
        sizes = {c.batch_size for c in self.combinations if _network(c) == _network(combination)}
        request = {
            "config": combination.config,
            "mode": "inference" if combination.mode == "inference" else "training",
            "sizes": sorted({size for size in sizes if size is not None} | set(TABLE_SIZES)),
            "torch_version": self.torch_version,
            "compute_capability": None if self.gpu is None else self.gpu["compute_capability"],
            "trust_config": combination.trust_config,
        }
        try:
            timeout_s = max(min(PREDICTION_TIMEOUT_S, self.left_s), 1.0)
            return ask_module("swinmr_profiling.profiler.gpu_check.predictions", request, timeout_s, NO_GPU)
        except PartFailedError as error:
            return {"failed": str(error)}

    def _row(self, place: int, combination: Combination) -> dict[str, Any]:
        prediction = self.predictions[place]
        table = prediction.get("sizes", {})
        batch_size = self._batch(combination, table)
        row: dict[str, Any] = {
            "name": combination.name,
            "mode": combination.mode,
            "precision": combination.config["system"]["mixed_precision"] or "fp32",
            "checkpointing": combination.config["training"]["gradient_checkpointing"],
            "allocator": combination.allocator,
            "requested_batch_size": combination.batch_size,
            "batch_size": batch_size,
            "predicted": self._predicted(combination, prediction, batch_size),
            "measured": None,
            "ratios": None,
        }
        missing = _missing(combination)
        if missing is not None:
            return {**row, "status": "not run", "reason": missing}
        if self.left_s < combination.takes_s:
            reason = f"{max(self.left_s, 0):.0f} s are left, and it takes about {combination.takes_s:.0f}"
            return {**row, "status": "not run", "reason": reason}
        started = self.clock()
        try:
            row |= self._measure(combination, batch_size, table)
        except WorkerError as failed:
            oom = failed.failure.error is FailureKind.OOM
            row |= {"status": failed.failure.error.value, "reason": failed.failure.detail}
            row["as_expected"] = oom and combination.mode == "out_of_memory"
        except RequestRefusedError as error:
            row |= {"status": "not run", "reason": str(error)}
        row["took_s"] = self.clock() - started
        row["ratios"] = ratios(row["measured"], row["predicted"])
        return row

    def _batch(self, combination: Combination, table: dict[str, Any]) -> int:
        """The batch wished for, or the largest of the table that is safely predicted to fit."""
        sizes = {int(size): needed_bytes(row, combination.allocator) for size, row in table.items()}
        if combination.mode == "out_of_memory":
            certain = [size for size, needed in sizes.items() if needed > self.usable_bytes * CERTAIN_SHARE]
            return combination.batch_size or min(certain, default=max(sizes, default=512))
        wish = combination.batch_size or 1
        if wish not in sizes or sizes[wish] <= self.usable_bytes * SAFE_SHARE:
            return wish
        safe = [
            size for size, needed in sizes.items() if size < wish and needed <= self.usable_bytes * SAFE_SHARE
        ]
        return max(safe, default=1)

    def _predicted(
        self, combination: Combination, prediction: dict[str, Any], batch_size: int
    ) -> dict[str, Any]:
        if "failed" in prediction:
            return {"source": None, "reason": prediction["failed"]}
        found = prediction["sizes"].get(str(batch_size))
        if found is None:
            return {"source": None, "reason": f"batch {batch_size} is beyond what can be predicted"}
        general = {key: found[key] for key in ("live_bytes", "phase", "operator", "workspace_bytes")}
        return {
            "source": "predicted",
            "workspaces": prediction["workspaces"],
            "aligned": prediction["aligned"],
            **general,
            **found[combination.allocator],
        }

    def _measure(self, combination: Combination, batch_size: int, table: dict[str, Any]) -> dict[str, Any]:
        timeout_s = min(combination.timeout_s, self.left_s)
        if combination.mode == "inference":
            return {"status": "measured", "measured": self._infer(combination, batch_size, timeout_s)}
        options = ProbeOptions(
            config=config_from_dict(combination.config),
            device=self.device,
            timeout_s=timeout_s,
            trust_config=combination.trust_config,
            environment=combination.variables,
            gpu_uuid=None if self.gpu is None else self.gpu["uuid"],
        )
        with TrainingProbes(options) as probes:
            if combination.mode == "search":
                return self._search(combination, probes, table)
            measured = training_figures(probes.measure(batch_size))
        row = {"status": "measured", "measured": measured}
        if combination.mode == "out_of_memory":
            row |= {"as_expected": False, "reason": "it ran, and should have been out of memory"}
        return row

    def _search(
        self, combination: Combination, probes: TrainingProbes, table: dict[str, Any]
    ) -> dict[str, Any]:
        def predict(batch_size: int) -> int:
            return bytes_at(table, batch_size, combination.allocator)

        result = search_batch(
            probes.probe,
            predict if len(table) > 1 else None,
            probes.memory,
            requested=combination.batch_size,
            may_go_on=lambda: self.left_s > TRIAL_S,
        )
        row = {"status": "measured", "search": result.to_json(), "batch_size": result.batch_size}
        if result.batch_size is None:
            return {**row, "status": result.outcome, "reason": result.reason}
        return {
            **row,
            "measured": training_figures(result.measurements[result.batch_size]),
            "predicted": None,
        }

    def _infer(self, combination: Combination, batch_size: int, timeout_s: float) -> dict[str, Any]:
        config = combination.config
        policy = LatencyPolicy(INFERENCE_RUNS, INFERENCE_WARMUP)
        with WorkerProcess(environment=combination.variables) as process:
            precision = config["system"]["mixed_precision"] or "fp32"
            process.ask("open", Opened, timeout_s, device=self.device, precision=precision, threads=None)
            seed, trust = config["system"]["seed"], combination.trust_config
            process.ask("build", Built, timeout_s, config=config, trust_config=trust, seed=seed)
            process.ask("place", NoneType, timeout_s, channels_last=False, compile=False)
            answer = process.ask(
                "measure",
                BatchMeasurement,
                timeout_s,
                batch_size=batch_size,
                expected_ms=None,
                **asdict(policy),
            )
        return inference_figures(answer)

    def _compare_with_reference(self) -> None:
        if self.left_s < REFERENCE_TIMEOUT_S / 2:
            self.content["reference"] = {"status": "not run", "reason": f"{self.left_s:.0f} s are left"}
            return
        request = {**self.reference, "device": self.device}
        try:
            timeout_s = min(REFERENCE_TIMEOUT_S, self.left_s)
            found = ask_module("swinmr_profiling.profiler.gpu_check.reference", request, timeout_s)
        except PartFailedError as error:
            found = {"skipped": str(error)}
        skipped = found.get("skipped")
        self.content["reference"] = (
            {"status": "measured", **found} if skipped is None else {"status": "not run", "reason": skipped}
        )


def _network(combination: Combination) -> str:
    """What has one prediction: the config, and whether it trains."""
    return f"{combination.mode == 'inference'} {combination.config}"


def _missing(combination: Combination) -> str | None:
    missing = [name for name in combination.packages if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else None
