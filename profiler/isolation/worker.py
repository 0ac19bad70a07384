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
from pathlib import Path
from typing import Any, TextIO

from swinmr_profiling.configs.standard_streams import replace_unknown_characters
from swinmr_profiling.machine_failures import machine_failure
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


class Worker:
    """Holds the network between requests. Each method named `do_<request>` answers one kind of request."""

    def __init__(self, send) -> None:
        self.send = send
        self._last_progress = 0.0
        self._runs = 0

    def do_open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Imports torch, resolves the device, sets threads; answers device and environment."""
        import torch

        from swinmr_profiling.profiler.measure.devices import check_precision, open_device, resolve_device
        from swinmr_profiling.profiler.measure.environment import describe_environment

        if request["threads"] is not None:
            torch.set_num_threads(request["threads"])
        self.torch_device = resolve_device(request["device"])
        self.dtype = check_precision(self.torch_device, request["precision"])
        self.device = open_device(self.torch_device)
        return {"device": str(self.torch_device), "environment": describe_environment(self.torch_device)}

    def do_build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Builds the network on the CPU from the seed; answers its inputs and parameters."""
        import torch

        from swinmr_profiling.configs import config_from_dict
        from swinmr_profiling.models.registry import build_model
        from swinmr_profiling.profiler.counting.parameters import describe_parameters

        torch.manual_seed(request["seed"])
        self.config = config = config_from_dict(request["config"])
        self.built = build_model(config, trust_config=request["trust_config"])
        self.built.module.eval()
        self.forward = None
        return {
            "net_type": self.built.net_type,
            "parameters": describe_parameters(self.built.module),
            "input_shape": self.built.input_shape(1),
            "training_input_shape": self.built.input_shape(1, "training"),
        }

    def do_count(self, request: dict[str, Any]) -> dict[str, Any]:
        """Counts one image's forward pass, without running it where the network can go to meta."""
        from swinmr_profiling.profiler.counting import count_forward

        return count_forward(self.built.module, self.built.example_inputs(1)).to_json()

    def do_cross_check(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Asks fvcore and thop, each in a process of its own (of this process's group: it dies with it)."""
        from swinmr_profiling.profiler.counting import cross_check

        checks = cross_check(
            request["config"],
            counters=request["counters"],
            size=request["size"],
            trust_config=request["trust_config"],
        )
        return [check.to_json() for check in checks]

    def do_place(self, request: dict[str, Any]) -> dict[str, Any]:
        """Moves the network to the device, in the memory format and compiled form asked for."""
        import torch

        module = self.built.module.to(self.torch_device)
        if request["channels_last"]:
            module.to(memory_format=torch.channels_last)
        self.channels_last = request["channels_last"]
        self.forward = torch.compile(module) if request["compile"] else module
        return {}

    def do_measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures one batch size."""
        from swinmr_profiling.profiler.measure.forward_pass import measure_forward
        from swinmr_profiling.profiler.measure.latency import LatencyPolicy

        self._runs = 0
        measurement = measure_forward(
            self.built,
            self.forward,
            self.device,
            self.torch_device,
            self.dtype,
            request["batch_size"],
            LatencyPolicy(**request["policy"]),
            expected_ms=request["expected_ms"],
            channels_last=self.channels_last,
            on_run=self.report_run,
        )
        return measurement.to_json()

    def do_device_memory(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the device has left for this process."""
        from dataclasses import asdict

        from swinmr_profiling.profiler.measure.training_memory import open_training_memory

        return asdict(open_training_memory(self.torch_device).device_memory())

    def do_train(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures training at one batch size; once in the life of a process."""
        from swinmr_profiling.profiler.measure.training_memory import open_training_memory
        from swinmr_profiling.profiler.measure.training_probe import probe_training

        measurement = probe_training(
            self.built,
            self.config,
            self.torch_device,
            request["batch_size"],
            request["steps"],
            open_training_memory(self.torch_device),
            on_stage=lambda stage: self.send({"event": "stage", "stage": stage}),
        )
        return measurement.to_json()

    def do_lpips(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures one LPIPS comparison of two images of the network's size."""
        from swinmr_profiling.profiler.measure.latency import LatencyPolicy
        from swinmr_profiling.profiler.measure.perceptual_metric import measure_lpips

        policy = LatencyPolicy(**request["policy"])
        return measure_lpips(tuple(request["image_hw"]), self.device, self.torch_device, policy)

    def report_run(self) -> None:
        """Tells the command that a run has ended, ten times a second at most."""
        self._runs += 1
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_INTERVAL_S:
            self._last_progress = now
            self.send({"event": "run", "runs": self._runs})


def answer(worker: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request: its result, a mistake of the user's, or a classified failure."""
    try:
        return {"event": "done", "result": getattr(worker, f"do_{request['do']}")(request)}
    except Exception as error:  # whatever a network raises is a result to report, never this process's end
        from swinmr_profiling.models.errors import ModelError
        from swinmr_profiling.profiler.measure.devices import DeviceError

        if isinstance(error, (ModelError, DeviceError)):
            return {"event": "refused", "message": first_lines(str(error))}
        # Where it comes from says nothing about what the machine refused.
        place = None if machine_failure(error) else traceback.format_exc()
        return {"event": "failed", "failure": classify_exception(error).to_json(), "traceback": place}


def serve(requests: TextIO, answers: TextIO, worker_class: Callable[..., Any] = Worker) -> None:
    """Answers requests until the command closes its end."""

    def send(message: dict[str, Any]) -> None:
        # What the network printed must not wait in a buffer: this process may be killed once it has answered.
        sys.stdout.flush()
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    worker = worker_class(send)
    for line in requests:
        send(answer(worker, json.loads(line)))


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
