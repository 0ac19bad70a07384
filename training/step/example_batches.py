"""Batches in the loader's layout without data behind them: what a step is profiled, predicted and tried on."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel, Purpose
from swinmr_profiling.training.degradation.acquisition import DegradedSlice
from swinmr_profiling.training.step.losses import CrossEntropyLoss, StandInLoss

# What the loader says of each slice beside its images.
NUMBERS_OF_SLICES = ("offset", "scale", "sampled_fraction")


class ExampleBatch(TypedDict):
    """What the loader collates, and the inputs of the network that no data has."""

    input: Tensor
    target: Tensor
    index: Tensor
    name: list[str]
    further_inputs: list[Tensor]


def example_batch(
    built: BuiltModel,
    batch_size: int,
    which: Purpose,
    *,
    channels: int | None = None,
    with_values: bool = True,
) -> ExampleBatch:
    """A collated batch on the CPU, as `training.data.loader` makes them of data: images, targets of their shape, names.

    Images are the network's first input. `further_inputs` are those that no data has.
    channels: of the image in that input, where more than the image is in it (a denoiser's condition).
    with_values: random values; without, memory that nobody may read (address space, of which nothing is taken).
    """
    if with_values:
        image, *further = built.example_inputs(batch_size, which=which)
    else:
        image, *further = map(_unread, built.example_inputs(batch_size, "meta", which=which))
    if channels is not None:
        image = image[:, :channels]
    return {
        "input": image,
        "target": torch.zeros(image.shape) if with_values else _unread(image),
        "index": torch.arange(batch_size),
        "name": ["random values"] * batch_size,
        "further_inputs": further,
    }


def in_loader_s_layout(batch: ExampleBatch) -> dict[str, Any]:
    """The batch as a step of the user's own gets it: with the numbers of each slice that the loader gives beside it.

    `further_inputs` are there where the network has inputs that no data has.
    """
    found: dict[str, Any] = {key: value for key, value in batch.items() if key != "further_inputs" or value}
    numbers = {name: torch.zeros(len(batch["name"]), dtype=torch.float64) for name in NUMBERS_OF_SLICES}
    return {**found, **numbers}


def target_for(loss: nn.Module, image: Tensor, output_shape: tuple[int, ...]) -> Tensor:
    """A target on the CPU that the loss takes beside an output of this shape, of zeros.

    Class numbers (int64, one per sample) for cross entropy; for the stand-in, which ignores it, the image that data
    gives, of the input's shape; else numbers of the output's shape.
    """
    if isinstance(loss, CrossEntropyLoss):
        return torch.zeros((output_shape[0], *output_shape[2:]), dtype=torch.int64)
    return torch.zeros(image.shape if isinstance(loss, StandInLoss) else output_shape)


def _unread(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype)


class ExampleSlices:
    """Stands where a sampler asks a dataset what was measured of a slice: k-space of the image's size, all zeros.

    It has the phantom's coils and sensitivities where the phantom is the data; what files hold is not known here, and
    one coil stands for it.
    """

    def __init__(self, config: ExperimentConfig, image_hw: tuple[int, int]) -> None:
        self.magnitude_only = False
        self.volumes = [self]
        self._is_phantom = config.data.resolved_source == "phantom"
        coils = config.data.phantom.coils if self._is_phantom else 1
        self._shape = (coils, *image_hw)

    def locate(self, index: int) -> tuple[int, int]:
        """As of a `ReconstructionDataset`."""
        return 0, index

    def degraded(self, index: int) -> tuple[DegradedSlice, np.ndarray]:
        """As of a `ReconstructionDataset`."""
        measured = torch.zeros(self._shape, dtype=torch.complex64)
        maps = torch.ones_like(measured) if self._is_phantom else None
        degraded = DegradedSlice(measured[0], measured[0], 0.0, 1.0, measured, maps)
        return degraded, np.zeros(self._shape[1:], dtype=bool)
