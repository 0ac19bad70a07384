"""The dataset: slices of any source, degraded, as inputs and targets of a network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.field_types import image_hw
from swinmr_profiling.configs.sections.data import AugmentationSection, DegradationSection
from swinmr_profiling.training.data.slice_masks import SliceMasks
from swinmr_profiling.training.data.sources import Split, open_split
from swinmr_profiling.training.degradation.acquisition import DegradedSlice, check_slice, degrade, to_channels
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.volumes import Volume, check_memory, read_slice

# First number of the seeds of crops and turns; those of masks are in `slice_masks`.
CROP_STREAM = 2


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs a block with one thread of torch, as loader processes do anyway, and restores the number.

    Transforms of one slice take milliseconds. Split over threads they gain little on idle cores, and on busy
    ones the threads wait for each other: 300 ms instead of 6 for a 256 x 256 slice were seen.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class SampleKey(NamedTuple):
    """What a sample depends on, beside the data and the seeds: nothing else, in no process.

    So the same key gives the same sample in every worker, on every rank and after a resumption, and another
    epoch another mask, crop and turn. `repeat` tells copies of a slice within one epoch apart. `drawn_as`: the slice
    whose mask, crop and turn it has, where it stands in for one that cannot be read.
    """

    epoch: int
    index: int  # type: ignore[assignment]  # a tuple has a method of this name
    repeat: int = 0
    drawn_as: int | None = None

    @property
    def seed(self) -> list[int]:
        """What its random numbers depend on."""
        return [self.epoch, self.index if self.drawn_as is None else self.drawn_as, self.repeat]


def _full_key(key: int | SampleKey) -> SampleKey:
    return SampleKey(*key) if isinstance(key, tuple) else SampleKey(0, key)


class Sample(TypedDict):
    """One sample. The default collation stacks the tensors and makes tensors of the numbers, a list of the names.

    input and target are float32 (channels, H, W); original magnitude = value x scale + offset; sampled_fraction
    is the share of k-space that this sample's mask sampled; name is "volume, slice n".
    """

    input: Tensor
    target: Tensor
    offset: float
    scale: float
    sampled_fraction: float
    index: int
    name: str


class ReconstructionDataset(Dataset):
    """Zero-filled inputs and fully sampled targets of all slices of some volumes.

    Training samples are cropped, flipped and turned after zero-filling, and every epoch draws new masks.
    Validation samples are whole slices, each with the same mask and noise every time, whatever else is in the
    folder. Indexed by SampleKey, or by a number (epoch 0).
    """

    def __init__(
        self,
        volumes: list[Volume],
        degradation: DegradationSection,
        *,
        training: bool,
        normalisation: str = "min_max",
        channels: int = 1,
        patch_hw: tuple[int, int] | None = None,
        augmentation: AugmentationSection | None = None,
        seed: int = 0,
    ) -> None:
        """patch_hw and augmentation are for training only. Raises DataError for volumes that cannot be used."""
        self.volumes, self.degradation, self.training = volumes, degradation, training
        self.normalisation, self.channels, self.seed = normalisation, channels, seed
        self.patch_hw = patch_hw if training else None
        self.augmentation = augmentation if training else None
        self._first_indices = np.cumsum([0] + [volume.slices for volume in volumes])
        self.masks = SliceMasks(degradation, training=training, seed=seed)
        if len(self) == 0:
            raise DataError("the data has no slices")
        for volume in volumes:
            check_memory(volume)
            self._check_sizes(volume)

    def __len__(self) -> int:
        return int(self._first_indices[-1])

    def degraded(self, key: int | SampleKey) -> tuple[DegradedSlice, np.ndarray]:
        """The whole slice behind a sample, before channels and patches, and the mask that sampled it."""
        key = _full_key(key)
        if not 0 <= key.index < len(self):
            raise IndexError(f"sample {key.index} of {len(self)}")
        volume_index, slice_index = self.locate(key.index)
        volume = self.volumes[volume_index]
        raw = read_slice(volume, slice_index)
        check_slice(raw, self.name(key.index), self.normalisation)
        rng = self.masks.generator(key.seed, self.name(key.index))
        mask = self.masks.mask(volume, rng)
        noise_std = self.degradation.noise_std
        return degrade(raw, mask, rng, self.normalisation, noise_std, complex_target=self.channels == 2), mask

    @one_thread()
    def __getitem__(self, key: int | SampleKey) -> Sample:
        key = _full_key(key)
        degraded, mask = self.degraded(key)
        name = self.name(key.index)
        try:
            pair = torch.stack(
                [to_channels(x, self.channels) for x in (degraded.zero_filled, degraded.target + 0j)]
            )
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        if self.training:
            pair = self._cut_and_turn(pair, np.random.default_rng([CROP_STREAM, self.seed, *key.seed]))
        return Sample(
            input=pair[0],
            target=pair[1],
            offset=degraded.offset,
            scale=degraded.scale,
            sampled_fraction=float(mask.mean()),
            index=key.index,
            name=name,
        )

    def locate(self, index: int) -> tuple[int, int]:
        """(number of the volume, slice within it) of a sample."""
        volume = int(np.searchsorted(self._first_indices, index, side="right")) - 1
        return volume, index - int(self._first_indices[volume])

    def name(self, index: int) -> str:
        """ "volume, slice n" of a sample, for messages and results."""
        volume, position = self.locate(index)
        return f"{self.volumes[volume].name}, slice {position}"

    def place(self, index: int) -> tuple[str, int]:
        """(file, or the volume's name where it has none, slice within the volume) of a sample."""
        volume, position = self.locate(index)
        return str(getattr(self.volumes[volume], "file", self.volumes[volume].name)), position

    @property
    def image_sizes(self) -> list[tuple[int, int]]:
        """The different (H, W) of samples, sorted: the patch, or the sizes of the volumes."""
        if self.patch_hw is not None:
            return [self.patch_hw]
        return sorted({volume.image_hw for volume in self.volumes})

    @property
    def kspace_statement(self) -> str:
        """Where k-space comes from, in words that belong into every result."""
        statements = {
            "measured k-space": not all(volume.kspace_simulated for volume in self.volumes),
            "k-space simulated from complex images": any(
                volume.kspace_simulated and not volume.magnitude_only for volume in self.volumes
            ),
            "k-space simulated from magnitude images (conjugate-symmetric, which flatters partial Fourier)": any(
                volume.kspace_simulated and volume.magnitude_only for volume in self.volumes
            ),
        }
        return "; ".join(text for text, holds in statements.items() if holds)

    @property
    def without_sensitivities(self) -> str | None:
        """Name of the first volume of several coils whose sensitivities are unknown; None where there is none."""
        unknown = (volume.name for volume in self.volumes if volume.coils > 1 and not volume.has_coil_maps)
        return next(unknown, None)

    def describe(self) -> dict[str, Any]:
        """What results record of the data (the share really sampled is in every sample, and averaged by whom it
        concerns)."""
        return {
            "volumes": len(self.volumes),
            "slices": len(self),
            "image_sizes": [list(size) for size in self.image_sizes],
            "kspace": self.kspace_statement,
            "kspace_simulated": any(volume.kspace_simulated for volume in self.volumes),
            "mask": self.degradation.mask,
            "mask_file": self.degradation.mask_file,
            "mask_note": self.masks.note,
            "nominal_fraction": self.masks.nominal_fraction,
            "noise_std": self.degradation.noise_std,
            "normalisation": self.normalisation,
        }

    def _check_sizes(self, volume: Volume) -> None:
        height, width = volume.image_hw
        patch = self.patch_hw
        if patch is not None and (patch[0] > height or patch[1] > width):
            raise DataError(
                f"{volume.name}: is {height} x {width}, smaller than the patch {patch[0]} x {patch[1]} "
                "(data.patch_size): make the patch smaller, or leave the volume out"
            )
        self.masks.check(volume)

    def _cut_and_turn(self, pair: Tensor, rng: np.random.Generator) -> Tensor:
        """The same crop, flip and quarter turns of input and target, (2, channels, H, W)."""
        height, width = pair.shape[-2:]
        if self.patch_hw is not None:
            top = int(rng.integers(height - self.patch_hw[0] + 1))
            left = int(rng.integers(width - self.patch_hw[1] + 1))
            pair = pair[..., top : top + self.patch_hw[0], left : left + self.patch_hw[1]]
        options = self.augmentation
        if options is not None:
            if options.random_flip and rng.random() < options.flip_probability:
                pair = pair.flip(-1)
            if options.random_rotation:
                # A quarter turn would make an oblong patch stand: only half turns keep its shape.
                square = pair.shape[-2] == pair.shape[-1]
                turns = int(rng.integers(4)) if square else 2 * int(rng.integers(2))
                pair = pair.rot90(turns, (-2, -1))
        return pair.contiguous()


def identity(dataset: ReconstructionDataset) -> dict[str, Any]:
    """Which slices a dataset has, in which order: their number, and the SHA-256 of their volumes' names and sizes."""
    listed = [[volume.name, volume.slices, *volume.image_hw] for volume in dataset.volumes]
    return {"slices": len(dataset), "volumes_sha256": hashlib.sha256(json.dumps(listed).encode()).hexdigest()}


def input_channels(config: ExperimentConfig) -> int:
    """Channels of the image that a network is given: 1 magnitude, 2 real and imaginary, more magnitude repeated.

    Raises DataError for a class of diffusers whose channels the config leaves to it.
    """
    shapes = getattr(config.model, "input_shapes", None)
    if shapes is not None:
        return shapes[0][0] if len(shapes[0]) == 3 else 1
    channels = getattr(config.model, "in_chans", 1)
    if channels is None:
        raise DataError("model.config.in_channels: give it, so that data is prepared with as many channels")
    return channels


def build_dataset(config: ExperimentConfig, split: Split) -> ReconstructionDataset:
    """The dataset of "train", "val" or "test" as the `data` section describes it.

    Raises:
        DataError: for data that cannot be used, and for an `upscale` other than 1 (inputs and targets have one
            size here).
    """
    data = config.data
    upscale = getattr(config.model, "upscale", 1)
    if upscale != 1:
        raise DataError(
            f"model.upscale is {upscale}: data is prepared for reconstruction, where input and target "
            "have one size; set it to 1"
        )
    patch_hw = image_hw(data.patch_size) if data.use_patches and data.patch_size is not None else None
    return ReconstructionDataset(
        open_split(config, split),
        data.degradation,
        training=split == "train",
        normalisation=data.normalisation,
        channels=input_channels(config),
        patch_hw=patch_hw,
        augmentation=data.augmentation,
        seed=config.system.seed,
    )
