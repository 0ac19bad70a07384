"""From a slice to what a network sees and should make of it: scale, sample, disturb, fill with zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from swinmr_profiling.training.degradation.kspace import (
    centre_crop,
    combine_coils,
    complex_noise,
    fft2c,
    ifft2c,
    root_sum_of_squares,
)
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.volumes import RawSlice

PERCENTILE = 99


@dataclass(frozen=True)
class DegradedSlice:
    """A slice before patches are cut.

    Attributes:
        zero_filled: (H, W), the network's input: complex, or real where coils were combined by root sum of squares.
        target: (H, W), real or complex.
        offset, scale: original value = normalised x scale + offset (of magnitudes).
        measured: (coils, H', W') complex k-space in normalised units, with its noise, 0 where nothing was sampled.
        coil_maps: (coils, H, W) sensitivities that it was simulated with, None for one uniform coil or unknown ones.
    """

    zero_filled: Tensor
    target: Tensor
    offset: float
    scale: float
    measured: Tensor
    coil_maps: Tensor | None = None


def normalisation_of(image: np.ndarray, kind: str, may_shift: bool) -> tuple[float, float]:
    """(offset, scale) such that (image - offset) / scale is normalised.

    Args:
        image: (H, W), real or complex; the magnitude counts.
        kind: "min_max" (to 0..1), "max", "percentile" (the 99th becomes 1) or "none".
        may_shift: whether an offset makes sense: not for measured k-space nor complex images, where "min_max"
            is "max".

    An image without contrast keeps its scale: (offset, 1).
    """
    if kind == "none":
        return 0.0, 1.0
    magnitude = image if may_shift else np.abs(image)
    offset = float(magnitude.min()) if kind == "min_max" and may_shift else 0.0
    top = float(np.percentile(magnitude, PERCENTILE)) if kind == "percentile" else 0.0
    if top <= 0:  # also where hardly a pixel is bright, and the percentile is background
        top = float(magnitude.max())
    return offset, top - offset if top > offset else 1.0


def check_slice(raw: RawSlice, name: str, normalisation: str) -> None:
    """Raises DataError, naming the slice, for NaN or infinite values, and for negative magnitudes."""
    for what, values in (("the image", raw.image), ("k-space", raw.kspace)):
        if values is not None and not np.isfinite(values).all():
            count = int((~np.isfinite(values)).sum())
            raise DataError(
                f"{name}: {what} has {count} NaN or infinite values; repair the file or leave it out"
            )
    if normalisation != "min_max" and not np.iscomplexobj(raw.image) and raw.image.min() < 0:
        raise DataError(
            f'{name}: has negative values, which no magnitude has; set data.normalisation to "min_max"'
        )


def degrade(
    raw: RawSlice,
    mask: np.ndarray,
    rng: np.random.Generator,
    normalisation: str = "min_max",
    noise_std: float = 0.0,
    complex_target: bool = False,
) -> DegradedSlice:
    """Scales a slice, samples its k-space (simulated where there is none), adds noise, fills with zeros.

    Args:
        raw: a checked slice.
        mask: boolean (H', W'), of the k-space's size.
        rng: draws the noise.
        normalisation: see `normalisation_of`; taken from the target, as SwinMR does.
        noise_std: deviation of the complex noise on sampled points, in units of the target's maximum.
        complex_target: take the target's phase from measured k-space too (of one coil).
    """
    may_shift = raw.kspace is None and not np.iscomplexobj(raw.image)
    offset, scale = normalisation_of(raw.image, normalisation, may_shift)
    target = torch.from_numpy(np.ascontiguousarray((raw.image - offset) / scale))
    maps = None if raw.coil_maps is None else torch.from_numpy(raw.coil_maps)
    if raw.kspace is not None:
        kspace = torch.from_numpy(raw.kspace) / scale
    else:
        kspace = fft2c(target[None] if maps is None else maps * target)
    sampled = torch.from_numpy(mask)
    measured = kspace * sampled
    if noise_std > 0:
        std = noise_std * float(target.abs().max())
        measured = measured + complex_noise(tuple(kspace.shape), std, rng) * sampled
    image_hw = (target.shape[-2], target.shape[-1])
    zero_filled = centre_crop(_combine(ifft2c(measured), maps), image_hw)
    if complex_target and raw.kspace is not None:
        target = centre_crop(_combine(ifft2c(kspace), maps), image_hw)
    return DegradedSlice(zero_filled, target, offset, scale, measured, maps)


def _combine(coil_images: Tensor, maps: Tensor | None) -> Tensor:
    if maps is not None:
        return combine_coils(coil_images, maps)
    return coil_images[0] if len(coil_images) == 1 else root_sum_of_squares(coil_images)


def to_channels(image: Tensor, channels: int) -> Tensor:
    """(H, W) to float32 (channels, H, W): 1 the magnitude, 2 real and imaginary part, more the magnitude repeated.

    Raises DataError for 2 channels of an image whose phase was lost in a root sum of squares.
    """
    if channels == 2:
        if not image.is_complex():
            raise DataError(
                "several coils without sensitivities have a magnitude only: set model.in_chans to 1"
            )
        return torch.stack([image.real, image.imag]).float()
    return image.abs().float().expand(channels, -1, -1)
