"""The network's forward pass and training step under an energy counter, and its data loader under a clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.forward_pass import evaluating, inputs_on
from swinmr_profiling.profiler.measure.machine.energy import CountedRuns, EnergyReader, count_energy
from swinmr_profiling.profiler.measure.training.training_probe import prepared_training
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, EnergyFigure
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.training_step import is_finite, training_step

# Batches that are loaded for a figure, and seconds after which fewer will do.
LOADED_BATCHES, LEAST_LOADED, LOADING_SECONDS = 30, 3, 20.0


def _wait_for(device: torch.device) -> Callable[[], object]:
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def inference_energy(
    built: BuiltModel,
    forward: Callable[..., Any],
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    reader: EnergyReader,
    *,
    channels_last: bool,
) -> EnergyFigure:
    """Forward passes as `measure_forward` makes them. Raises whatever the network raises."""
    inputs = inputs_on(built, batch_size, device, channels_last=channels_last)

    def counted() -> CountedRuns:
        with evaluating(built.module, device, dtype):
            return count_energy(lambda: forward(*inputs), _wait_for(device), reader)

    found = without_gradients(built.module, counted)
    return _figure("inference", batch_size, [int(n) for n in inputs[0].shape], found, None)


def training_energy(
    built: BuiltModel, config: ExperimentConfig, device: torch.device, batch_size: int, reader: EnergyReader
) -> EnergyFigure:
    """Optimizer steps as `train.py` makes them, on example inputs. Raises whatever the step raises."""
    with prepared_training(built, config, device, batch_size, 10**6) as (state, settings, stream, _, _):
        found = count_energy(
            lambda: training_step(state, settings, stream, is_finite), _wait_for(device), reader
        )
    images = batch_size * config.training.accumulate
    return _figure("training_step", batch_size, built.input_shape(batch_size, "training"), found, images)


def _figure(
    what: str, batch_size: int, shape: list[int], found: CountedRuns, images_per_step: int | None
) -> EnergyFigure:
    each = found.joules / found.runs
    return EnergyFigure.model_validate(
        {
            "source": "measured",
            "what": what,
            "batch_size": batch_size,
            "input_shape": shape,
            "num_runs": found.runs,
            "duration_s": found.seconds,
            "joules": found.joules,
            "mean_watts": found.joules / found.seconds,
            "joules_per_image": each / (images_per_step or batch_size),
            "joules_per_step": None if images_per_step is None else each,
            "images_per_step": images_per_step,
        }
    )


def measure_loading(config: ExperimentConfig, batch_size: int, step_ms: float | None) -> DataLoading:
    """Times the config's own training loader. step_ms: of a micro-batch of as many images.

    Raises DataError for data that is not there or cannot be read.
    """
    from swinmr_profiling.training.data.loader import build_loader

    batches = iter(build_loader(config, "train", batch_size=batch_size))
    took_ms: list[float] = []
    begin = last = time.perf_counter()
    # One epoch may be short: what it has is what is timed.
    for _ in batches:
        now = time.perf_counter()
        took_ms.append((now - last) * 1e3)
        last = now
        if len(took_ms) > LOADED_BATCHES or (len(took_ms) > LEAST_LOADED and now - begin > LOADING_SECONDS):
            break
    del batches  # ends its workers
    # The first waits for workers to start.
    later = took_ms[1:] or took_ms
    median_ms = statistics.median(later)
    # Workers hand batches over in bursts: the rate is that of all, not the median's.
    rate = batch_size * len(later) * 1e3 / max(sum(later), 1e-6)
    return DataLoading(
        source="measured",
        data_source=config.data.resolved_source,
        batch_size=batch_size,
        num_workers=config.data.num_workers,
        num_batches=len(later),
        first_batch_ms=took_ms[0],
        median_ms=median_ms,
        images_per_second=rate,
        step_ms=step_ms,
        waits=None if step_ms is None else batch_size * 1e3 / rate > step_ms,
    )
