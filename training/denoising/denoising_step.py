"""A denoiser's training: from images and their zero-filled inputs to noisy inputs, time steps and targets.

The step itself (`training.step.training_step`) knows nothing of it: a micro-batch has one input more, and a target
with weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import DiffusionSection
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.training.denoising.noise_schedule import (
    NoiseSchedule,
    build_schedule,
    min_snr_weights,
    prediction_target,
)
from swinmr_profiling.training.errors import LossError
from swinmr_profiling.training.step.losses import WeightedTarget
from swinmr_profiling.training.step.training_step import MicroBatch
from swinmr_profiling.training.validation.validation import to_device

# First number of seeds, so that no two uses of a seed share a sequence (1 to 5: training/data).
NOISE_STREAM = 6
# A collated batch, the device, the epoch and the batch's number in it, to what a step takes.
Preparation = Callable[[Mapping[str, Any], torch.device, int, int], MicroBatch]


def to_network_range(image: Tensor) -> Tensor:
    """Normalised images (B, C, H, W) around 0: magnitudes from 0..1 to -1..1; real and imaginary parts as they are."""
    return image if image.shape[-3] == 2 else 2 * image - 1


def from_network_range(image: Tensor) -> Tensor:
    """The inverse of `to_network_range`."""
    return image if image.shape[-3] == 2 else (image + 1) / 2


@dataclass(frozen=True)
class Denoising:
    """What a denoiser of a config predicts of what.

    Attributes:
        section: `training.diffusion`.
        conditional: whether the zero-filled image goes in behind the noisy one.
    """

    schedule: NoiseSchedule
    section: DiffusionSection
    conditional: bool

    def micro_batch(
        self,
        batch: Mapping[str, Any],
        device: torch.device,
        timesteps: Tensor,
        noise: Tensor,
        dropped: Tensor | None = None,
    ) -> MicroBatch:
        """Input, time step and weighted target of a collated batch.

        Args:
            timesteps: (B,), int64. noise: (B, C, H, W), standard normal. dropped: (B,), bool, samples without
                condition. All on the CPU, so that every device sees the same values.
        """
        image = to_network_range(batch["target"].to(device, non_blocking=True))
        noise = noise.to(device, non_blocking=True)
        signal, spread = (factor.to(device) for factor in self.schedule.factors(timesteps))
        noisy = signal * image + spread * noise
        condition = None
        if self.conditional:
            condition = to_network_range(batch["input"].to(device, non_blocking=True))
            if dropped is not None:
                condition = condition * (~dropped).to(condition)[:, None, None, None]
        target = prediction_target(self.section.objective, image, noise, signal, spread)
        weights = min_snr_weights(
            self.section.objective, self.schedule.signal_to_noise(timesteps), self.section.min_snr_gamma
        )
        weighted = WeightedTarget(target, weights.float().to(device))
        inputs = (with_condition(noisy, condition), timesteps.to(device, non_blocking=True))
        return MicroBatch(inputs, weighted, list(batch["name"]))

    def training_batch(
        self, batch: Mapping[str, Any], device: torch.device, generators: Sequence[np.random.Generator]
    ) -> MicroBatch:
        """A micro-batch whose time steps, noise and left-out conditions the samples' own generators draw."""
        shape = tuple(batch["target"].shape[1:])
        timesteps, dropped, noise = [], [], []
        for generator in generators:
            timesteps.append(int(generator.integers(self.schedule.timesteps)))
            dropped.append(bool(generator.random() < self.section.condition_dropout))
            noise.append(torch.from_numpy(generator.standard_normal(shape, dtype=np.float32)))
        return self.micro_batch(
            batch, device, torch.tensor(timesteps), torch.stack(noise), torch.tensor(dropped)
        )


def with_condition(noisy: Tensor, condition: Tensor | None) -> Tensor:
    """The network's first input: (B, C, H, W), or (B, 2C, H, W) with the condition behind the noisy image."""
    return noisy if condition is None else torch.cat([noisy, condition], dim=1)


def refuse_further_inputs(built: BuiltModel, config: ExperimentConfig) -> None:
    """Raises LossError for a denoiser that takes more than image and time step, which the data has not.

    Such as the prompt's embedding, which a class of diffusers is given without being named in the config.
    """
    if config.is_denoiser and config.training.step is None and len(built.inputs["training"]) != 2:
        text = "; ".join(built.notes) or "it takes other inputs than an image and a time step"
        raise LossError(f"model: the data has an image and a time step alone; {text}; can only be profiled")


def build_denoising(config: ExperimentConfig) -> Denoising:
    """The denoising of a config.

    Raises LossError for a network whose output is not a prediction of the image's channels, or that takes more than
    image and time step.
    """
    model, diffusion = config.denoiser, config.training.diffusion
    outputs, inputs = getattr(model, "out_chans", None), getattr(model, "inputs", None) or {}
    for is_refused, text in (
        (
            outputs not in (None, model.in_chans),
            f"out_chans is {outputs}: a prediction has the image's {model.in_chans} channels; null trains, {outputs} "
            "can only be profiled",
        ),
        (
            getattr(model, "num_classes", None) is not None,
            "num_classes: the data has no classes; null trains, classes can only be profiled",
        ),
        (inputs, f"inputs: the data has no {', '.join(inputs)}; such a network can only be profiled"),
    ):
        if is_refused:
            raise LossError(f"model.{text}")
    return Denoising(build_schedule(diffusion), diffusion, model.conditional)


def build_preparation(config: ExperimentConfig, rank: int = 0, world_size: int = 1) -> Preparation:
    """What makes a step's micro-batch of a collated training batch.

    A denoiser's noise depends on the seed, the epoch and the sample's place in it alone: a resumed run, other
    accumulation and other devices with the same global batch see the same. Raises LossError as `build_denoising`, and
    for a loss whose targets the data does not have.
    """
    if not config.is_denoiser:
        if config.training.loss.type == "cross_entropy":
            raise LossError(
                'training.loss.type: the data has no classes; "cross_entropy" can only be profiled'
            )
        return lambda batch, device, epoch, number: to_device(batch, device)
    denoising, seed = build_denoising(config), config.system.seed

    def prepare(batch: Mapping[str, Any], device: torch.device, epoch: int, number: int) -> MicroBatch:
        count = len(batch["name"])
        first = (number * world_size + rank) * count
        generators = [
            np.random.default_rng([NOISE_STREAM, seed, epoch, first + position]) for position in range(count)
        ]
        return denoising.training_batch(batch, device, generators)

    return prepare
