"""Structural similarity (Wang et al. 2004), differentiable, as fastMRI and scikit-image compute it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW, K1, K2 = 7, 0.01, 0.03


def ssim_map(output: Tensor, target: Tensor, data_range: Tensor | float) -> Tensor:
    """SSIM of every window that lies inside the image: (N, C, H, W) to (N, C, H - 6, W - 6).

    Uniform 7 x 7 windows, k1 0.01, k2 0.03, sample covariance (49 / 48), channel by channel. data_range is one
    number or broadcasts, such as (N, 1, 1, 1). scikit-image's mean over its cropped map is this map's mean.

    Raises:
        ValueError: for images smaller than a window.
    """
    if min(target.shape[-2:]) < WINDOW:
        size = " x ".join(map(str, target.shape[-2:]))
        raise ValueError(f"SSIM needs images of at least {WINDOW} x {WINDOW}, not {size}")
    points = WINDOW**2
    to_sample = points / (points - 1)

    def mean(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, WINDOW, stride=1)

    mean_x, mean_y = mean(output), mean(target)
    var_x = to_sample * (mean(output * output) - mean_x * mean_x)
    var_y = to_sample * (mean(target * target) - mean_y * mean_y)
    covariance = to_sample * (mean(output * target) - mean_x * mean_y)
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    return luminance * (2 * covariance + c2) / (var_x + var_y + c2)


def ssim(output: Tensor, target: Tensor, data_range: Tensor | float) -> Tensor:
    """Mean SSIM over all windows, channels and images, a scalar: see `ssim_map`."""
    return torch.mean(ssim_map(output, target, data_range))
