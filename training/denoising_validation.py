"""A denoiser's validation: its loss at fixed time steps with fixed noise, and images where the config asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from configs import ExperimentConfig
from training.dataset import ReconstructionDataset
from training.denoising import build_denoising
from training.diffusion_reconstruction import build_sampler
from training.losses import first_tensor
from training.random_choice import name_seed
from training.step import StepSettings
from training.validation import BatchResult

VALIDATION_NOISE_STREAM = 8
# Every slice is tried at these shares of the schedule, with the same noise in every validation, so that two
# validations differ by the network alone.
SHARES = (0.125, 0.375, 0.625, 0.875)


def fixed_timesteps(timesteps: int) -> list[int]:
    """The time steps that validation looks at: the middles of the quarters of the schedule."""
    return [int(share * timesteps) for share in SHARES]


def denoising_result(
    config: ExperimentConfig,
    loss: nn.Module,
    dataset: ReconstructionDataset | None,
    settings: StepSettings,
    device: torch.device,
) -> BatchResult:
    """The mean loss over `fixed_timesteps`, and one sample a slice of `evaluation.sampling.validation_steps`.

    dataset: of the validation split, for what was measured. Raises LossError as `build_denoising`.
    """
    denoising = build_denoising(config)
    steps = config.evaluation.sampling.validation_steps
    sampler = build_sampler(config, settings.autocast_dtype, steps=steps, samples=1) if steps else None

    def run(network: nn.Module, batch: dict[str, Any]) -> tuple[float, Tensor | None]:
        shape = tuple(batch["target"].shape[1:])
        enabled = settings.autocast_dtype is not None
        values = []
        for timestep in fixed_timesteps(denoising.schedule.timesteps):
            noise = [
                np.random.default_rng([VALIDATION_NOISE_STREAM, name_seed(name), timestep])
                for name in batch["name"]
            ]
            drawn = np.stack([one.standard_normal(shape, dtype=np.float32) for one in noise])
            times = torch.full((len(drawn),), timestep, dtype=torch.int64)
            micro_batch = denoising.micro_batch(batch, device, times, torch.from_numpy(drawn))
            with torch.autocast(settings.device_type, settings.autocast_dtype, enabled=enabled):
                output = first_tensor(network(*micro_batch.inputs))
            values.append(float(loss(output, micro_batch.target).total))
        images = None if sampler is None else sampler.reconstruct(network, batch, device, dataset)[0]
        return sum(values) / len(values), images

    return run
