"""Reconstructions sampled with a denoiser: measured k-space kept at every step, every slice with noise of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import SamplingSection
from swinmr_profiling.models.stand_in import stands_for
from swinmr_profiling.training.data.dataset import ReconstructionDataset
from swinmr_profiling.training.degradation.acquisition import DegradedSlice
from swinmr_profiling.training.degradation.data_consistency import consistent_channels
from swinmr_profiling.training.degradation.random_choice import name_seed
from swinmr_profiling.training.denoising.denoising_step import (
    Denoising,
    build_denoising,
    from_network_range,
    to_network_range,
    with_condition,
)
from swinmr_profiling.training.denoising.noise_schedule import guided, predicted_image, sample, spacing
from swinmr_profiling.training.errors import LossError
from swinmr_profiling.training.step.example_batches import ExampleSlices
from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.validation.validation import on_host

SAMPLING_STREAM = 7


@dataclass(frozen=True)
class MeasuredSlice:
    """What was measured of a slice, on the network's device: enough to make an image agree with it."""

    degraded: DegradedSlice
    mask: Tensor
    magnitude_only: bool

    def agree(self, image: Tensor) -> Tensor:
        """A normalised image (C, H, W) with measured k-space in place of its own."""
        return consistent_channels(image, self.degraded, self.mask, magnitude_only=self.magnitude_only)


# What tells the k-space of a slice: a dataset, or what stands for one where only sizes matter.
Slices = ReconstructionDataset | ExampleSlices


def measured_slice(dataset: Slices, index: int, device: torch.device) -> MeasuredSlice:
    """Reads and degrades a slice again, exactly as the dataset did."""
    degraded, mask = dataset.degraded(index)
    maps = degraded.coil_maps
    moved = dataclasses.replace(
        degraded,
        measured=degraded.measured.to(device),
        coil_maps=None if maps is None else maps.to(device),
    )
    magnitude_only = dataset.volumes[dataset.locate(index)[0]].magnitude_only
    return MeasuredSlice(moved, torch.from_numpy(mask).to(device), magnitude_only)


@dataclass(frozen=True)
class DiffusionSampler:
    """How a config samples. section: `evaluation.sampling`, with other values where the caller has them."""

    denoising: Denoising
    section: SamplingSection
    autocast_dtype: torch.dtype | None = None

    @property
    def calls(self) -> int:
        """Calls of the network for one sample of one slice."""
        return self.section.sampling_steps * (1 if self.section.guidance == 1 else 2)

    def describe(self) -> dict[str, Any]:
        """What results record of the sampling."""
        section = self.section
        return {
            "sampler": section.sampler,
            "sampling_steps": section.sampling_steps,
            "spacing": spacing(self.denoising.schedule.timesteps, section.sampling_steps),
            "guidance": section.guidance,
            "denoiser_calls_per_sample": self.calls,
            "samples_per_slice": section.samples_per_slice,
            "data_consistency": section.data_consistency,
            "clip": section.clip,
            "seed": section.seed,
            "seeds": "numpy's generator of [7, seed, CRC-32 of the slice's name, number of the sample]",
        }

    def reconstruct(
        self,
        network: nn.Module,
        batch: Mapping[str, Any],
        device: torch.device,
        dataset: Slices | None = None,
    ) -> Tensor:
        """All samples (samples, B, C, H, W), normalised, float32, on the CPU, of a collated batch.

        dataset: the batch's, for what was measured; None: no data consistency.
        Raises LossError for a network whose output is not a prediction of its image's size.
        """
        with torch.inference_mode():
            # One sample after the other is on the device.
            return torch.stack(list(map(on_host, self.sampled(network, batch, device, dataset))))

    def sampled(
        self,
        network: nn.Module,
        batch: Mapping[str, Any],
        device: torch.device,
        dataset: Slices | None = None,
    ) -> Iterator[Tensor]:
        """As `reconstruct`, but one sample (B, C, H, W) at a time, on the device, in the caller's gradient mode."""
        known = None
        if self.section.data_consistency and dataset is not None:
            known = [measured_slice(dataset, index, device) for index in batch["index"].tolist()]
        condition = None
        if self.denoising.conditional:
            condition = to_network_range(batch["input"].to(device))
        shape = tuple(batch["target"].shape[1:])
        names = list(batch["name"])
        estimate = self._estimator(network, condition, known)
        for number in range(self.section.samples_per_slice):
            draw = self._noise(names, number, shape, device)
            yield from_network_range(
                sample(
                    estimate, self.denoising.schedule, self.section.sampling_steps, self.section.sampler, draw
                )
            ).float()

    def _noise(
        self, names: list[str], number: int, shape: tuple[int, ...], device: torch.device
    ) -> Callable[[], Tensor]:
        # By name: a slice has the same noise in every batch, order and process.
        seeds = [[SAMPLING_STREAM, self.section.seed, name_seed(name), number] for name in names]
        generators = [np.random.default_rng(seed) for seed in seeds]

        def draw() -> Tensor:
            noise = [generator.standard_normal(shape, dtype=np.float32) for generator in generators]
            return torch.from_numpy(np.stack(noise)).to(device)

        return draw

    def _estimator(
        self, network: nn.Module, condition: Tensor | None, known: list[MeasuredSlice] | None
    ) -> Callable[[Tensor, int], Tensor]:
        def estimate(noisy: Tensor, timestep: int) -> Tensor:
            output = self._predict(network, noisy, condition, timestep)
            if output.shape != noisy.shape:
                shapes = f"{tuple(output.shape)} of a noisy image {tuple(noisy.shape)}"
                raise LossError(f"the network makes {shapes}: a prediction has the size of its image")
            factors = self.denoising.schedule.factors(torch.tensor([timestep]))
            signal, spread = (factor.to(noisy.device) for factor in factors)
            image = predicted_image(self.denoising.section.objective, output, noisy, signal, spread)
            if self.section.clip:
                image = image.clamp(-1, 1)
            if known is None:
                return image
            pairs = zip(known, from_network_range(image), strict=True)
            return to_network_range(torch.stack([one.agree(x) for one, x in pairs]))

        return estimate

    def _predict(self, network: nn.Module, noisy: Tensor, condition: Tensor | None, timestep: int) -> Tensor:
        inputs = with_condition(noisy, condition)
        is_guided = condition is not None and self.section.guidance != 1
        if condition is not None and is_guided:
            inputs = torch.cat([inputs, with_condition(noisy, torch.zeros_like(condition))])
        timesteps = torch.full((len(inputs),), timestep, dtype=torch.int64, device=noisy.device)
        dtype = self.autocast_dtype
        lower = nullcontext() if dtype is None else torch.autocast(stands_for(noisy.device.type), dtype)
        with lower:
            output = first_tensor(network(inputs, timesteps)).float()
        if not is_guided:
            return output
        conditional, unconditional = output.chunk(2)
        return guided(conditional, unconditional, self.section.guidance)


def build_sampler(
    config: ExperimentConfig, autocast_dtype: torch.dtype | None, **other: Any
) -> DiffusionSampler:
    """The sampler of `evaluation.sampling`; other: keys with another value. Raises LossError as `build_denoising`."""
    section = config.evaluation.sampling.model_copy(update=other)
    return DiffusionSampler(build_denoising(config), section, autocast_dtype)
