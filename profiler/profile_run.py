"""The main job from config to profile: five steps, each saved as soon as it is known."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from tqdm import tqdm

from configs import LoadedConfig
from profiler.console import (
    Console,
    print_batch,
    print_configuration,
    print_counts,
    print_parameters,
    print_single_image,
    print_summary,
)
from profiler.exit_codes import EXIT_DONE, EXIT_NOTHING_FITS, EXIT_PARTIAL
from profiler.failures import FailureKind
from profiler.interruption import Interrupted, interruptible
from profiler.latency import TARGET_HALF_WIDTH, LatencyPolicy
from profiler.machine_state import governor_warning, gpu_warnings, load_warning
from profiler.measurement_blocks import batch_block, failure_block, measurement_warnings
from profiler.profile_record import Profile
from profiler.recommendation import recommend_inference
from profiler.result_file import ResultFile
from profiler.session import MeasureOptions, MeasuringSession
from profiler.sweep import (
    DEFAULT_BATCH_SIZES,
    DEFAULT_SWEEP_LIMIT_S,
    Expectation,
    SizeResult,
    Sweep,
    ascending,
)
from profiler.worker_process import WorkerError

GIGA = 1e9
# Failures that say something about memory or about what was asked, not about a defect: they leave exit code 0.
ANSWERS = (FailureKind.OOM.value, FailureKind.SKIPPED.value)


@dataclass(frozen=True)
class RunOptions:
    """What the command line says beside the measuring itself. batch_sizes None: the default sweep."""

    measure: MeasureOptions
    batch_sizes: Sequence[int] | None = None
    command_line: Sequence[str] = ()


class ProfileRun:
    """One run. `execute` is the whole of it; the rest are its steps."""

    def __init__(
        self, loaded: LoadedConfig, options: RunOptions, console: Console, result: ResultFile
    ) -> None:
        self.loaded, self.options, self.console, self.result = loaded, options, console, result
        sizes = DEFAULT_BATCH_SIZES if options.batch_sizes is None else options.batch_sizes
        self.sizes = ascending(sizes)
        self.session = MeasuringSession(options.measure, loaded.config.model_dump(mode="json"))
        self.profile = Profile(config=self._config_block())
        self._disk_failed = False

    def execute(self) -> int:
        """Runs all steps and returns the exit code. Raises RequestRefusedError for what the user must change."""

        def kill_worker() -> None:
            if self.session.process is not None:
                self.session.process.kill()

        with interruptible(kill_worker):
            try:
                with self.session:
                    self._open()
                    self._architecture()
                    self._batches()
                self._finish("complete", None)
            except Interrupted as interrupted:
                self._finish("partial", str(interrupted))
            except WorkerError as failed:
                self.console.bad(failed.failure.detail)
                self._finish("partial", failed.failure.detail)
        return self._exit_code()

    def _config_block(self) -> dict[str, Any]:
        config, measure = self.loaded.config, self.options.measure
        return {
            "model": config.model.net_type,
            "image_size": getattr(config.model, "img_size", None),
            "device": measure.device,
            "config_file": str(self.loaded.file),
            "config_sha256": self.loaded.sha256,
            "experiment_name": config.experiment_name,
            "batch_sizes": self.sizes,
            **asdict(measure),
            "resolved": config.model_dump(mode="json"),
        }

    def _open(self) -> None:
        opened = self.session.open()
        self.device = opened["device"]
        self.device_kind = self.device.partition(":")[0]
        self.profile.config["device"] = self.device
        self.profile.environment = {
            **opened["environment"],
            "command_line": shlex.join(self.options.command_line),
        }
        print_configuration(self.console, self.profile.config)
        cores = self.profile.environment["cpu"]["usable_cores"]
        self._warn(load_warning(cores))
        if self.device_kind == "cpu":
            self._warn(governor_warning())
        self._warn_about_gpu()
        self._save()

    def _warn(self, warning) -> None:
        if warning is not None and self.profile.warn(warning):
            self.console.warning(warning)

    def _warn_about_gpu(self) -> None:
        gpu = self.profile.environment["gpu"]
        if gpu is not None and self.session.process is not None:
            for warning in gpu_warnings(gpu.get("uuid"), {self.session.process.process.pid}):
                self._warn(warning)

    def _architecture(self) -> None:
        self.console.step(1, "Creating model...")
        built = self.session.build()
        self.console.good("Model created")
        self.console.step(2, "Analyzing model architecture...")
        counts_unknown = dict.fromkeys(("flops", "gflops", "macs", "gmacs", "flops_per_parameter"))
        architecture = {
            "source": "measured",
            "input_shape": built["input_shape"],
            "num_runs": 1,
            **built["parameters"],
            **counts_unknown,
        }
        self.profile.architecture = architecture
        self.input_shape = built["input_shape"]
        print_parameters(self.console, architecture)
        self._save()
        self.console.step(3, "Measuring FLOPs...")
        self._count(architecture)
        self._save()

    def _count(self, architecture: dict[str, Any]) -> None:
        try:
            counted = self.session.count()
        except WorkerError as failed:
            architecture["count_error"] = failed.failure.detail
            self.console.bad(f"not counted: {failed.failure.detail}")
            return
        parameters = architecture["total_parameters"]
        architecture.update(
            macs=counted["macs"],
            flops=counted["flops"],
            gmacs=counted["macs"] / GIGA,
            gflops=counted["flops"] / GIGA,
            flops_per_parameter=counted["flops"] / parameters if parameters else None,
        )
        for name in (
            "by_kind", "by_operator", "by_module", "uncounted_operators", "elementwise_flops", "softmax_macs",
            "counted_on", "note",
        ):  # fmt: skip
            architecture[name] = counted[name]
        print_counts(self.console, architecture)

    def _batches(self) -> None:
        measure = self.options.measure
        policy = LatencyPolicy(
            measure.num_runs, measure.warmup, measure.time_budget_s, TARGET_HALF_WIDTH[self.device_kind]
        )
        on_cpu = self.device_kind == "cpu"
        limited = on_cpu and self.options.batch_sizes is None
        self.sweep = Sweep(
            self.session, policy, on_cpu=on_cpu, limit_s=DEFAULT_SWEEP_LIMIT_S if limited else None
        )
        self.console.step(4, "Profiling single image inference...")
        self.profile.single_image = self._measure(1)
        print_single_image(self.console, self.profile.single_image)
        self._save()
        self.console.step(5, "Profiling batch sizes...")
        bar = tqdm(self.sizes, unit="size", disable=None, file=sys.stderr, leave=False)
        with bar if not bar.disable else nullcontext():
            for size in bar:
                bar.set_description(f"batch {size}")
                self.console.line()
                self.console.line(f"  Testing batch size: {size}")
                # The single image is batch 1: one measurement under both names.
                block = self.profile.single_image if size == 1 else self._measure(size, bar)
                self.profile.batch_profiling[str(size)] = block
                print_batch(self.console, block)
                self._warn_about_gpu()
                self.profile.recommendation = self._recommendation()
                self._save()

    def _measure(self, size: int, bar: tqdm | None = None) -> dict[str, Any]:
        runs = 0

        def on_start(expectation: Expectation | None) -> None:
            if expectation is not None:
                seconds = expectation.latency_ms / 1000
                self.console.note(f"about {seconds:,.2f} s a run, by batch {expectation.from_batch}")

        def on_event(event: dict[str, Any]) -> None:
            nonlocal runs
            runs += 1
            if bar is not None:
                bar.set_postfix_str(f"{runs} runs")

        result = self.sweep.measure(size, on_start, on_event)
        return self._block(result)

    def _block(self, result: SizeResult) -> dict[str, Any]:
        size = result.batch_size
        expected = {} if result.expectation is None else {"expected": result.expectation.to_json()}
        if result.failure is not None:
            if result.traceback is not None and result.failure.error is FailureKind.EXCEPTION:
                print(result.traceback, file=sys.stderr, end="")
            return failure_block(result.failure, size, [size, *self.input_shape[1:]], expected)
        for warning in measurement_warnings(result.measurement, self.device_kind):
            self._warn(warning)
        return {**batch_block(result.measurement, self.device_kind), **expected}

    def _recommendation(self) -> dict[str, Any]:
        return {"inference": recommend_inference(self.profile.batch_profiling), "training": []}

    def _save(self) -> None:
        if not self.result.save(self.profile.to_json()) and not self._disk_failed:
            # Once: the next save tries again, and the end says where the result is.
            self._disk_failed = True
            reason = self.result.last_error.strerror or self.result.last_error
            print(f"warning: {self.result.name} cannot be written now: {reason}", file=sys.stderr)

    def _finish(self, status: str, reason: str | None) -> None:
        failed = [size for size, block in self.profile.batch_profiling.items() if self._is_defect(block)]
        if status == "complete" and failed:
            status, reason = "partial", f"failed: batch {', '.join(failed)}"
        self.profile.status, self.profile.status_reason = status, reason
        content = self.profile.to_json()
        print_summary(self.console, content)
        elsewhere = self.result.finish(content)
        self._lost_its_place = elsewhere is not None
        self.console.line()
        if elsewhere is not None:
            print(f"error: {elsewhere}", file=sys.stderr)
        elif status == "complete":
            self.console.good(f"Results saved to: {self.result.name}", indent=0)
        else:
            self.console.bad(f"Partial results ({reason}) saved to: {self.result.name}", indent=0)

    @staticmethod
    def _is_defect(block: dict[str, Any]) -> bool:
        return "error" in block and block["error"] not in ANSWERS

    def _exit_code(self) -> int:
        if self.profile.status != "complete" or self._lost_its_place:
            return EXIT_PARTIAL
        if not any("timing" in block for block in self.profile.batch_profiling.values()):
            return EXIT_NOTHING_FITS
        return EXIT_DONE
