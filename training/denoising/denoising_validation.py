"""A denoiser's validation: its loss at fixed time steps with fixed noise, and images where the config asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.training.data.dataset import ReconstructionDataset
from swinmr_profiling.training.degradation.random_choice import name_seed
from swinmr_profiling.training.denoising.denoising_step import build_denoising
from swinmr_profiling.training.denoising.diffusion_reconstruction import Slices, build_sampler
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.step.training_step import StepSettings
from swinmr_profiling.training.validation.validation import (
    BatchResult,
    direct_result,
    on_host,
    validate_batch,
)

VALIDATION_NOISE_STREAM = 8
# Every slice is tried at these shares of the schedule, with the same noise in every validation, so that two
# validations differ by the network alone.
SHARES = (0.125, 0.375, 0.625, 0.875)


def fixed_timesteps(timesteps: int) -> list[int]:
    """The time steps that validation looks at: the middles of the quarters of the schedule."""
    return [int(share * timesteps) for share in SHARES]


def build_batch_result(
    config: ExperimentConfig,
    loss: nn.Module,
    dataset: ReconstructionDataset | None,
    settings: StepSettings,
    device: torch.device,
) -> BatchResult:
    """How a config's validation makes a loss and images of a batch.

    dataset: of the validation split, for what was measured. Raises LossError as `build_denoising`, DataError for data
    consistency with coils of unknown sensitivities.
    """
    if config.is_denoiser:
        return denoising_result(config, loss, dataset, settings, device)
    return direct_result(loss, settings, device)


def largest_call(config: ExperimentConfig) -> int:
    """Images in the network's largest call of a validation batch: sampling with guidance asks for twice the batch."""
    sampling = config.evaluation.sampling
    is_doubled = config.is_denoiser and sampling.validation_steps > 0 and sampling.guidance != 1
    return config.data.val_batch_size * (2 if is_doubled else 1)


def denoising_result(
    config: ExperimentConfig,
    loss: nn.Module,
    dataset: Slices | None,
    settings: StepSettings,
    device: torch.device,
) -> BatchResult:
    """The mean loss over `fixed_timesteps`, and one sample a slice of `evaluation.sampling.validation_steps`.

    dataset: of the validation split, for what was measured.
    Raises LossError as `build_denoising`, DataError for data consistency with coils of unknown sensitivities.
    """
    denoising = build_denoising(config)
    steps = config.evaluation.sampling.validation_steps
    sampler = None
    if steps:
        sampler = build_sampler(config, settings.autocast_dtype, sampling_steps=steps, samples_per_slice=1)
    # What stands for a dataset where only sizes matter has no files.
    unknown = getattr(dataset, "without_sensitivities", None)
    if sampler is not None and sampler.section.data_consistency and unknown is not None:
        raise DataError(
            f"{unknown} has several coils without sensitivities, which data consistency needs: set "
            "evaluation.sampling.data_consistency to false"
        )

    def loss_at(timestep: int, network: nn.Module, batch: Mapping[str, Any]) -> float:
        shape = tuple(batch["target"].shape[1:])
        noise = [
            np.random.default_rng([VALIDATION_NOISE_STREAM, name_seed(name), timestep])
            for name in batch["name"]
        ]
        drawn = np.stack([one.standard_normal(shape, dtype=np.float32) for one in noise])
        times = torch.full((len(drawn),), timestep, dtype=torch.int64)
        micro_batch = denoising.micro_batch(batch, device, times, torch.from_numpy(drawn))
        return validate_batch(network, loss, micro_batch, settings)[1]

    def run(network: nn.Module, batch: Mapping[str, Any]) -> tuple[float, Tensor | None]:
        # Each call finds the device as the one before it did: nothing of a time step outlives it.
        values = [loss_at(t, network, batch) for t in fixed_timesteps(denoising.schedule.timesteps)]
        mean = sum(values) / len(values)
        if sampler is None:
            return mean, None
        [images] = map(on_host, sampler.sampled(network, batch, device, dataset))
        return mean, images

    return run
