"""The process that builds, counts and measures, one request at a time; see `worker_process` for its other side.

It lives apart from the command so that whatever a network does to it (out of memory, a kernel kill, a
segmentation fault, a hang) costs one measurement and not the run. Requests and answers are JSON, one a line,
on two pipes of their own: the network may print what it likes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import JsonValue

from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.machine_failures import machine_failure
from swinmr_profiling.profiler.measure.measurement import (
    BatchMeasurement,
    DeviceMemory,
    MetricMeasurement,
    TrainingMeasurement,
)
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy
from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    CrossCheck,
    ModuleCosts,
    TrainingMacs,
)
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, Energy
from swinmr_profiling.profiler.record.blocks.figures import Block
from swinmr_profiling.profiler.record.blocks.run_description import Environment
from swinmr_profiling.profiler.record.failures import classify_exception, first_lines
from swinmr_profiling.stop_signals import STOP_SIGNALS

PROGRESS_INTERVAL_S = 0.1
# Of -1000 to 1000: when memory runs out the kernel takes the process with the most, and this bonus makes sure
# that it is this one, not the command that holds the results (nor the user's other work).
OOM_SCORE_ADJUSTMENT = 1000
PR_SET_PDEATHSIG = 1


def offer_to_kernel() -> None:
    """Makes this process the kernel's first choice when host memory runs out (Linux; elsewhere nothing)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE_ADJUSTMENT))


def die_with_parent() -> None:
    """Has the kernel kill this process when the command dies, however it dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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


class Worker:
    """Holds the network between requests. Each method named `do_<request>` answers one kind of request."""

    def __init__(self, send: Callable[..., None]) -> None:
        """send: tells the command an event, with its fields."""
        self.send = send
        self._last_progress = 0.0
        self._runs = 0

    def do_open(self, device: str, precision: str, threads: int | None) -> Opened:
        """Imports torch, resolves the device, sets threads."""
        import torch

        from swinmr_profiling.profiler.measure.machine.devices import (
            check_precision,
            open_device,
            resolve_device,
        )
        from swinmr_profiling.profiler.measure.machine.environment import describe_environment

        if threads is not None:
            torch.set_num_threads(threads)
        self.torch_device = resolve_device(device)
        self.dtype = check_precision(self.torch_device, precision)
        self.device = open_device(self.torch_device)
        return Opened(str(self.torch_device), describe_environment(self.torch_device))

    def do_build(
        self,
        config: dict[str, JsonValue],
        trust_config: bool,
        seed: int,
        data: Literal["always", "if it fits"] = "always",
    ) -> Built:
        """Builds the network on the CPU from the seed; "if it fits": else without data."""
        import torch

        from swinmr_profiling.configs import config_from_dict
        from swinmr_profiling.models.registry import build_model
        from swinmr_profiling.profiler.counting.parameters import describe_parameters
        from swinmr_profiling.profiler.measure.own_step.other_step import other_step

        torch.manual_seed(seed)
        self.config, self.trust_config = config_from_dict(config), trust_config
        self.built = build_model(self.config, trust_config=trust_config, data=data)
        # Here already: a step that cannot be had is told before anything is measured.
        self.own_step = other_step(self.config, self.built, trust_config=trust_config)
        self.built.module.eval()
        self.forward: Callable[..., Any] | None = None
        self.architecture = describe_parameters(self.built.module, self.built.input_shape(1))
        return Built(self.architecture, self.built.input_shape(1, "training"), list(self.built.notes))

    def do_count(self) -> Architecture:
        """Counts one image's forward pass, without running it where the network can go to meta."""
        from swinmr_profiling.profiler.counting import count_forward
        from swinmr_profiling.profiler.counting.parameters import with_counts

        return with_counts(self.architecture, count_forward(self.built.module, self.built.example_inputs(1)))

    def do_count_training(self) -> TrainingMacs:
        """Counts the training step, without data."""
        from swinmr_profiling.profiler.measure.training.counted_training import count_own_step, count_training

        if self.own_step is not None:
            return count_own_step(self.own_step, self.built, self.config)
        return count_training(self.built, self.config)

    def do_cross_check(self, size: str, counters: list[str], keep: bool) -> list[CrossCheck]:
        """Asks fvcore and thop, each in a process of its own (of this process's group: it dies with it).

        keep: what they said in an earlier run is taken from the user's cache folder, and kept there.
        """
        from swinmr_profiling.profiler.counting.other_counters.kept_answers import kept_cross_check

        return kept_cross_check(
            self.config, counters=counters, size=size, trust_config=self.trust_config, keep=keep
        )

    def do_place(self, channels_last: bool, compile: bool) -> None:
        """Moves the network to the device, in the memory format and compiled form asked for."""
        import torch

        from swinmr_profiling.training.step.attention_kernels import allow_attention_kernels

        allow_attention_kernels(self.config.system.attention, self.torch_device.type)

        module = self.built.module.to(self.torch_device)
        if channels_last:
            module.to(memory_format=torch.channels_last)
        self.channels_last = channels_last
        self.forward = torch.compile(module) if compile else module

    def do_measure(self, batch_size: int, expected_ms: float | None, **policy: Any) -> BatchMeasurement:
        """Measures one batch size; policy: fields of a LatencyPolicy."""
        from swinmr_profiling.profiler.measure.forward_pass import measure_forward

        self._runs = 0
        assert self.forward is not None
        return measure_forward(
            self.built,
            self.forward,
            self.device,
            self.torch_device,
            self.dtype,
            batch_size,
            LatencyPolicy(**policy),
            expected_ms=expected_ms,
            channels_last=self.channels_last,
            on_run=self.report_run,
        )

    def do_measure_modules(self, macs_by_path: dict[str, int]) -> ModuleCosts:
        """Measures each module of the network, by hooks."""
        from swinmr_profiling.profiler.measure.module_costs import measure_modules

        return measure_modules(
            self.built,
            self.torch_device,
            self.dtype,
            channels_last=self.channels_last,
            macs_by_path=macs_by_path,
        )

    def do_trace_forward(self, batch_size: int, file: str, compress: bool) -> int:
        """Writes one measured pass for Perfetto; answers the number of events."""
        from swinmr_profiling.profiler.measure.profiler_trace import write_forward_trace

        assert self.forward is not None
        return write_forward_trace(
            self.built,
            self.forward,
            self.torch_device,
            self.dtype,
            batch_size,
            Path(file),
            channels_last=self.channels_last,
            compress=compress,
        )

    def do_energy(self, batch_size: int, training_batch: int | None) -> Energy:
        """Energy of the forward pass, and of the training step where a batch size is named."""
        from swinmr_profiling.profiler.measure.energy_blocks import inference_energy, training_energy
        from swinmr_profiling.profiler.measure.machine.energy import open_energy

        reader = open_energy(self.torch_device)
        assert self.forward is not None
        forward = inference_energy(
            self.built,
            self.forward,
            self.torch_device,
            self.dtype,
            batch_size,
            reader,
            channels_last=self.channels_last,
        )
        figures = [forward]
        if training_batch is not None:
            figures.append(
                training_energy(self.built, self.config, self.torch_device, training_batch, reader)
            )
        return Energy(
            source="measured",
            reader=reader.name,
            covers=reader.covers,
            untried=reader.untried,
            figures=figures,
        )

    def do_loading(self, config: dict[str, JsonValue], batch_size: int, step_ms: float | None) -> DataLoading:
        """Times the config's own data loader."""
        from swinmr_profiling.configs import config_from_dict
        from swinmr_profiling.profiler.measure.energy_blocks import measure_loading
        from swinmr_profiling.profiler.measure.machine.devices import DeviceError
        from swinmr_profiling.training.errors import DataError

        try:
            return measure_loading(config_from_dict(config), batch_size, step_ms)
        except DataError as error:
            raise DeviceError(str(error)) from error

    def do_device_memory(self) -> DeviceMemory:
        """What the device has left for this process."""
        from swinmr_profiling.profiler.measure.training.training_memory import open_training_memory

        return open_training_memory(self.torch_device).device_memory()

    def do_train(self, batch_size: int, steps: int) -> TrainingMeasurement:
        """Measures training at one batch size; once in the life of a process."""
        from swinmr_profiling.profiler.measure.own_step.own_step_probe import probe_own_step
        from swinmr_profiling.profiler.measure.training.training_memory import open_training_memory
        from swinmr_profiling.profiler.measure.training.training_probe import probe_training

        probe = probe_training if self.own_step is None else partial(probe_own_step, self.own_step)
        return probe(
            self.built,
            self.config,
            self.torch_device,
            batch_size,
            steps,
            open_training_memory(self.torch_device),
            on_stage=lambda stage: self.send("stage", stage=stage),
        )

    def do_lpips(self, image_hw: list[int], **policy: Any) -> MetricMeasurement:
        """Measures one LPIPS comparison of two images of the network's size."""
        from swinmr_profiling.profiler.measure.perceptual_metric import measure_lpips

        return measure_lpips(
            (image_hw[0], image_hw[1]), self.device, self.torch_device, LatencyPolicy(**policy)
        )

    def report_run(self) -> None:
        """Tells the command that a run has ended, ten times a second at most."""
        self._runs += 1
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_INTERVAL_S:
            self._last_progress = now
            self.send("run", runs=self._runs)


def answer(worker: Any, send: Callable[..., None], do: str, **arguments: Any) -> None:
    """Sends the answer to one request: its result, a mistake of the user's, or a classified failure."""
    try:
        result = getattr(worker, f"do_{do}")(**arguments)
    except Exception as error:  # whatever a network raises is a result to report, never this process's end
        from swinmr_profiling.models.errors import ModelError
        from swinmr_profiling.profiler.measure.machine.devices import DeviceError

        if isinstance(error, (ModelError, DeviceError)):
            send("refused", message=first_lines(str(error)))
        else:
            # Where it comes from says nothing about what the machine refused.
            place = None if machine_failure(error) else traceback.format_exc()
            send("failed", failure=classify_exception(error), traceback=place)
    else:
        send("done", result=result)


def _in_json(value: Any) -> Any:
    """A block or a dataclass of an answer."""
    return value.to_json() if isinstance(value, Block) else vars(value)


def serve(requests: TextIO, answers: TextIO, worker_class: Callable[..., Any] = Worker) -> None:
    """Answers requests until the command closes its end."""

    def send(event: str, **fields: Any) -> None:
        # What the network printed must not wait in a buffer: this process may be killed once it has answered.
        sys.stdout.flush()
        answers.write(json.dumps({"event": event, **fields}, default=_in_json) + "\n")
        answers.flush()

    worker = worker_class(send)
    for line in requests:
        answer(worker, send, **json.loads(line))


def main(worker_class: Callable[..., Any] = Worker) -> None:
    """Entry of the process: `main <requests file descriptor> <answers file descriptor>` in sys.argv.

    worker_class: what answers, made with a function that sends events.
    """
    replace_unknown_characters()
    die_with_parent()
    offer_to_kernel()
    # The command decides about what reaches its whole group: a measurement must not die before it has been asked to.
    for number in STOP_SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    requests = os.fdopen(int(sys.argv[1]), "r", encoding="utf-8")
    answers = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")
    with suppress(BrokenPipeError):  # the command is gone, and nobody is left to tell
        serve(requests, answers, worker_class)
