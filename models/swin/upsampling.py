"""SwinIR's reconstruction heads: features (B, C, H, W) to an image of `upscale` times the size."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

# Channels of the heads that widen the image step by step; fixed in the published networks.
HEAD_CHANNELS = 64


class PixelShuffleStages(nn.Sequential):
    """Convolution and pixel shuffle, once per factor of 2 (or once for a factor of 3)."""

    def __init__(self, upscale: int, channels: int) -> None:
        if upscale == 3:
            factors = [3]
        elif upscale >= 1 and upscale & (upscale - 1) == 0:
            factors = [2] * int(math.log2(upscale))
        else:
            raise ValueError(f"upsampler 'pixelshuffle' makes upscale 3 or a power of 2, not {upscale}")
        stages: list[nn.Module] = []
        for factor in factors:
            stages += [nn.Conv2d(channels, factor**2 * channels, 3, padding=1), nn.PixelShuffle(factor)]
        super().__init__(*stages)


class PixelShuffleOnce(nn.Sequential):
    """One convolution and one pixel shuffle straight to the image ("lightweight" super-resolution)."""

    def __init__(self, upscale: int, channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, upscale**2 * out_channels, 3, padding=1), nn.PixelShuffle(upscale)
        )


def double_and_convolve(x: Tensor, convolution: nn.Module) -> Tensor:
    """Nearest-neighbour doubling, 3 x 3 convolution, leaky ReLU: one stage of the "nearest+conv" head."""
    return F.leaky_relu(convolution(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
