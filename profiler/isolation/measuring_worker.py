"""What the measuring process answers: it builds, counts and measures, one request at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import JsonValue

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.other_counters.kept_answers import kept_cross_check
from swinmr_profiling.profiler.counting.parameters import describe_parameters, with_counts
from swinmr_profiling.profiler.measure.energy import (
    inference_energy,
    measure_loading,
    open_energy,
    training_energy,
)
from swinmr_profiling.profiler.measure.forward_pass import measure_forward, measure_lpips
from swinmr_profiling.profiler.measure.machine.devices import (
    DeviceError,
    check_precision,
    open_device,
    resolve_device,
)
from swinmr_profiling.profiler.measure.machine.environment import describe_environment
from swinmr_profiling.profiler.measure.measurement import (
    BatchMeasurement,
    Built,
    DeviceMemory,
    MetricMeasurement,
    Opened,
    TrainingMeasurement,
)
from swinmr_profiling.profiler.measure.module_costs import measure_modules
from swinmr_profiling.profiler.measure.profiler_trace import write_forward_trace
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy
from swinmr_profiling.profiler.measure.training.counted_training import count_own_step, count_training
from swinmr_profiling.profiler.measure.training.own_step import other_step, probe_own_step
from swinmr_profiling.profiler.measure.training.training_probe import probe_training
from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    CrossCheck,
    ModuleCosts,
    TrainingMacs,
)
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, Energy
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.step.attention_kernels import allow_attention_kernels

PROGRESS_INTERVAL_S = 0.1


class Worker:
    """Holds the network between requests. Each method named `do_<request>` answers one kind of request."""

    def __init__(self, send: Callable[..., None]) -> None:
        """send: tells the command an event, with its fields."""
        self.send = send
        self._last_progress = 0.0
        self._runs = 0

    def do_open(self, device: str, precision: str, threads: int | None) -> Opened:
        """Imports torch, resolves the device, sets threads."""
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
        torch.manual_seed(seed)
        self.config, self.trust_config = config_from_dict(config), trust_config
        self.built = build_model(self.config, trust_config=trust_config, data=data)
        # Here already: a step that cannot be had is told before anything is measured.
        self.own_step = other_step(self.config, self.built, trust_config=trust_config)
        self.built.module.eval()
        self.architecture = describe_parameters(self.built.module, self.built.input_shape(1))
        return Built(self.architecture, self.built.input_shape(1, "training"), list(self.built.notes))

    def do_count(self) -> Architecture:
        """Counts one image's forward pass, without running it where the network can go to meta."""
        return with_counts(self.architecture, count_forward(self.built.module, self.built.example_inputs(1)))

    def do_count_training(self) -> TrainingMacs:
        """Counts the training step, without data."""
        counted = count_training if self.own_step is None else partial(count_own_step, self.own_step)
        return counted(self.built, self.config)

    def do_cross_check(self, size: str, counters: list[str], keep: bool) -> list[CrossCheck]:
        """Asks fvcore and thop, each in a process of its own (of this process's group: it dies with it).

        keep: what they said in an earlier run is taken from the user's cache folder, and kept there.
        """
        return kept_cross_check(
            self.config, counters=counters, size=size, trust_config=self.trust_config, keep=keep
        )

    def do_place(self, channels_last: bool, compile: bool) -> None:
        """Moves the network to the device, in the memory format and compiled form asked for."""
        allow_attention_kernels(self.config.system.attention, self.torch_device.type)

        module = self.built.module.to(self.torch_device)
        if channels_last:
            module.to(memory_format=torch.channels_last)
        self.channels_last = channels_last
        self.forward = torch.compile(module) if compile else module

    def do_measure(self, batch_size: int, expected_ms: float | None, **policy: Any) -> BatchMeasurement:
        """Measures one batch size; policy: fields of a LatencyPolicy."""
        self._runs = 0
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
        return measure_modules(
            self.built,
            self.torch_device,
            self.dtype,
            channels_last=self.channels_last,
            macs_by_path=macs_by_path,
        )

    def do_trace_forward(self, batch_size: int, file: str, compress: bool) -> int:
        """Writes one measured pass for Perfetto; answers the number of events."""
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
        reader = open_energy(self.torch_device)
        figures = [
            inference_energy(
                self.built,
                self.forward,
                self.torch_device,
                self.dtype,
                batch_size,
                reader,
                channels_last=self.channels_last,
            )
        ]
        if training_batch is not None:
            figures.append(
                training_energy(self.built, self.config, self.torch_device, training_batch, reader)
            )
        return Energy(
            source="measured",
            reader=reader.name,
            covers=reader.covers,
            untried=True,
            figures=figures,
        )

    def do_loading(self, config: dict[str, JsonValue], batch_size: int, step_ms: float | None) -> DataLoading:
        """Times the config's own data loader."""
        try:
            return measure_loading(config_from_dict(config), batch_size, step_ms)
        except DataError as error:
            raise DeviceError(str(error)) from error

    def do_device_memory(self) -> DeviceMemory:
        """What the device has left for this process."""
        return self.device.device_memory()

    def do_train(self, batch_size: int, steps: int) -> TrainingMeasurement:
        """Measures training at one batch size; once in the life of a process."""
        probe = probe_training if self.own_step is None else partial(probe_own_step, self.own_step)
        return probe(
            self.built,
            self.config,
            self.torch_device,
            batch_size,
            steps,
            self.device,
            on_stage=lambda stage: self.send("stage", stage=stage),
        )

    def do_lpips(self, image_hw: list[int], **policy: Any) -> MetricMeasurement:
        """Measures one LPIPS comparison of two images of the network's size."""
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
