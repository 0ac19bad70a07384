"""Hard data consistency of a reconstruction: what was measured replaces what the network made of it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from training.degradation import DegradedSlice
from training.kspace import (
    centre_crop,
    combine_coils,
    fft2c,
    hard_data_consistency,
    ifft2c,
    root_sum_of_squares,
)


def consistent(output: Tensor, degraded: DegradedSlice, mask: np.ndarray, *, magnitude_only: bool) -> Tensor:
    """A network's image with its k-space replaced by the measured samples where the mask sampled.

    Args:
        output: (C, H, W), normalised; two channels are real and imaginary part, else the magnitude is their mean.
        degraded: the slice, with the k-space that was measured of it (coils, H', W').
        mask: boolean (H', W').
        magnitude_only: whether the data is magnitude, so that its true phase is 0.

    Returns:
        Magnitudes (H, W), float32, in the same normalised unit.

    Coils are the network's image times their sensitivities. Where those are unknown each coil keeps its share
    of the zero-filled image and its phase, which one magnitude cannot say. Where k-space is larger than the
    image, the zero-filled image is kept outside of it.
    """
    measured = degraded.measured
    zero_filled = ifft2c(measured)
    image = torch.complex(output[0], output[1]) if len(output) == 2 else output.mean(0)
    if degraded.coil_maps is not None:
        if len(output) != 2:
            combined = combine_coils(zero_filled, degraded.coil_maps)
            image = image * torch.exp(1j * combined.angle())
        coil_images = degraded.coil_maps * image
    elif len(output) == 2 or magnitude_only:
        coil_images = _placed(image[None].to(measured.dtype), zero_filled)
    else:
        total = root_sum_of_squares(zero_filled)
        tiny = torch.finfo(total.dtype).tiny
        share = zero_filled / total.clamp_min(tiny)
        coil_images = _placed(centre_crop(share, tuple(image.shape)) * image, zero_filled)
    sampled = torch.from_numpy(mask)
    kspace = hard_data_consistency(fft2c(coil_images), measured.to(coil_images.dtype), sampled)
    coil_images = ifft2c(kspace)
    if degraded.coil_maps is not None:
        result = combine_coils(coil_images, degraded.coil_maps).abs()
    else:
        result = root_sum_of_squares(coil_images)
    return centre_crop(result, tuple(image.shape)).float()


def _placed(images: Tensor, around: Tensor) -> Tensor:
    """Coil images (coils, H, W) in the centre of (coils, H', W')."""
    height, width = images.shape[-2:]
    placed = around.clone()
    centre_crop(placed, (height, width)).copy_(images)  # a crop is a view
    return placed
