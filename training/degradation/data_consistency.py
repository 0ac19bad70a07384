"""Hard data consistency of a reconstruction: what was measured replaces what the network made of it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from swinmr_profiling.training.degradation.acquisition import DegradedSlice
from swinmr_profiling.training.degradation.kspace import (
    centre_crop,
    combine_coils,
    fft2c,
    hard_data_consistency,
    ifft2c,
    root_sum_of_squares,
)


def consistent(
    output: Tensor, degraded: DegradedSlice, mask: np.ndarray | Tensor, *, magnitude_only: bool
) -> Tensor:
    """A network's image with its k-space replaced by the measured samples where the mask sampled.

    Args:
        output: (C, H, W), normalised; two channels are real and imaginary part, else the magnitude is their mean.
        degraded: the slice, with the k-space that was measured of it (coils, H', W'), on the output's device.
        mask: boolean (H', W').
        magnitude_only: whether the data is magnitude, so that its true phase is 0.

    Returns:
        Magnitudes (H, W), float32, in the same normalised unit.

    Coils are the network's image times their sensitivities. Where those are unknown each coil keeps its share
    of the zero-filled image and its phase, which one magnitude cannot say. Where k-space is larger than the
    image, the zero-filled image is kept outside of it.
    """
    coil_images = _consistent_coils(output, degraded, mask, magnitude_only)
    maps = degraded.coil_maps
    result = root_sum_of_squares(coil_images) if maps is None else combine_coils(coil_images, maps).abs()
    return centre_crop(result, (output.shape[-2], output.shape[-1])).float()


def consistent_channels(
    output: Tensor, degraded: DegradedSlice, mask: np.ndarray | Tensor, *, magnitude_only: bool
) -> Tensor:
    """As `consistent`, but in the output's own channels (C, H, W): real and imaginary part stay two."""
    if len(output) != 2:
        image = consistent(output, degraded, mask, magnitude_only=magnitude_only)
        return image.expand(len(output), -1, -1)
    coil_images = _consistent_coils(output, degraded, mask, magnitude_only)
    maps = degraded.coil_maps
    # Without sensitivities there is one coil: two channels of several are refused when they are read.
    image = coil_images[0] if maps is None else combine_coils(coil_images, maps)
    image = centre_crop(image, (output.shape[-2], output.shape[-1]))
    return torch.stack([image.real, image.imag]).float()


def sampled_error(
    output: Tensor, degraded: DegradedSlice, mask: np.ndarray | Tensor, *, magnitude_only: bool
) -> float:
    """|M (F x - k0)| / |M k0| of an image (C, H, W): how far its k-space is from what was measured.

    NaN where nothing but zeros was measured.
    """
    kspace = fft2c(_coil_images(output, degraded, magnitude_only))
    sampled = torch.as_tensor(mask, device=kspace.device)
    measured = degraded.measured.to(kspace.dtype) * sampled
    size = float(torch.linalg.vector_norm(measured))
    return float(torch.linalg.vector_norm(kspace * sampled - measured)) / size if size else float("nan")


def _consistent_coils(
    output: Tensor, degraded: DegradedSlice, mask: np.ndarray | Tensor, magnitude_only: bool
) -> Tensor:
    coil_images = _coil_images(output, degraded, magnitude_only)
    sampled = torch.as_tensor(mask, device=coil_images.device)
    measured = degraded.measured.to(coil_images.dtype)
    return ifft2c(hard_data_consistency(fft2c(coil_images), measured, sampled))


def _coil_images(output: Tensor, degraded: DegradedSlice, magnitude_only: bool) -> Tensor:
    """What the coils would see of the network's image, (coils, H', W')."""
    measured = degraded.measured
    zero_filled = ifft2c(measured)
    image = torch.complex(output[0], output[1]) if len(output) == 2 else output.mean(0)
    maps = degraded.coil_maps
    if maps is not None:
        # Where k-space is larger than the image, the zero-filled image is kept outside of it.
        combined = combine_coils(zero_filled, maps)
        if len(output) != 2:
            image = image * centre_crop(torch.exp(1j * combined.angle()), (image.shape[-2], image.shape[-1]))
        return maps * _placed(image[None].to(combined.dtype), combined[None])
    if len(output) == 2 or magnitude_only:
        return _placed(image[None].to(measured.dtype), zero_filled)
    total = root_sum_of_squares(zero_filled)
    tiny = torch.finfo(total.dtype).tiny
    share = zero_filled / total.clamp_min(tiny)
    return _placed(centre_crop(share, (image.shape[-2], image.shape[-1])) * image, zero_filled)


def _placed(images: Tensor, around: Tensor) -> Tensor:
    """Coil images (coils, H, W) in the centre of (coils, H', W')."""
    height, width = images.shape[-2:]
    placed = around.clone()
    centre_crop(placed, (height, width)).copy_(images)  # a crop is a view
    return placed
