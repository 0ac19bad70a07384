"""k-space: the centred orthonormal Fourier transform, coils, noise and data consistency.

Everywhere here k-space and images are complex tensors whose last two axes are (H, W), the zero frequency of
k-space at [H // 2, W // 2]. The transform is over those two axes alone: never over batch, channels or coils.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

AXES = (-2, -1)


def fft2c(image: Tensor) -> Tensor:
    """Image (..., H, W), real or complex, to k-space (..., H, W), complex.

    Orthonormal: the sum of squares is kept (Parseval), so noise and losses have the same scale on both sides.
    The centre of the image is at [H // 2, W // 2] too.
    """
    shifted = torch.fft.ifftshift(image, dim=AXES)
    return torch.fft.fftshift(torch.fft.fft2(shifted, dim=AXES, norm="ortho"), dim=AXES)


def ifft2c(kspace: Tensor) -> Tensor:
    """k-space (..., H, W) to image (..., H, W), complex: the inverse of `fft2c`."""
    shifted = torch.fft.ifftshift(kspace, dim=AXES)
    return torch.fft.fftshift(torch.fft.ifft2(shifted, dim=AXES, norm="ortho"), dim=AXES)


def root_sum_of_squares(coil_images: Tensor, dim: int = -3) -> Tensor:
    """Coil images (..., coils, H, W) to one magnitude image (..., H, W) (Roemer et al. 1990)."""
    return coil_images.abs().square().sum(dim).sqrt()


def combine_coils(coil_images: Tensor, coil_maps: Tensor) -> Tensor:
    """Coil images and sensitivities (..., coils, H, W) to one complex image (..., H, W).

    sum(conj(S) x) / sum(|S|^2): the least-squares solution for fully sampled coils (SENSE, Pruessmann et al.
    1999, at acceleration 1). 0 where no coil is sensitive.
    """
    weight = coil_maps.abs().square().sum(-3)
    combined = (coil_maps.conj() * coil_images).sum(-3)
    return torch.where(weight > 0, combined / weight.clamp_min(torch.finfo(weight.dtype).tiny), 0)


def complex_noise(shape: tuple[int, ...], std: float, rng: np.random.Generator) -> Tensor:
    """Circular complex Gaussian noise, complex64, with E|n|^2 = std^2 (std / sqrt(2) in each part)."""
    parts = rng.standard_normal((*shape, 2), dtype=np.float32)
    return torch.view_as_complex(torch.from_numpy(parts)) * (std / np.sqrt(2))


def hard_data_consistency(kspace: Tensor, measured: Tensor, mask: Tensor) -> Tensor:
    """(1 - M) k + M k0: measured samples replace what the network made of them.

    kspace, measured: (..., H, W), complex. mask: 0 or 1, broadcast against them.
    """
    return torch.where(mask.bool(), measured, kspace)


def centre_crop(image: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """The central (h, w) of an image (..., H, W), as fastMRI crops reconstructions.

    Raises ValueError when the image is smaller.
    """
    height, width = image.shape[-2:]
    if size_hw[0] > height or size_hw[1] > width:
        raise ValueError(f"cannot crop {height} x {width} to {size_hw[0]} x {size_hw[1]}")
    top, left = (height - size_hw[0]) // 2, (width - size_hw[1]) // 2
    return image[..., top : top + size_hw[0], left : left + size_hw[1]]
