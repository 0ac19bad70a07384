"""SwinIR's reconstruction heads: features (B, C, H, W) to an image of `upscale` times the size."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

# The mean colour of DIV2K, which networks of colour images take off before their first convolution.
DIV2K_MEAN = (0.4488, 0.4371, 0.4040)
# Channels of the heads that widen the image step by step; fixed in the published networks.
HEAD_CHANNELS = 64


def shuffled(scale: int, channels: int, refusal: str) -> list[nn.Module]:
    """A convolution and a pixel shuffle for each factor of 2, or one of 3. Raises ValueError(refusal) for others."""
    if scale == 3:
        steps = [3]
    elif scale >= 1 and scale & (scale - 1) == 0:
        steps = [2] * int(math.log2(scale))
    else:
        raise ValueError(refusal)
    return [
        layer
        for step in steps
        for layer in (nn.Conv2d(channels, step**2 * channels, 3, padding=1), nn.PixelShuffle(step))
    ]


class PixelShuffleStages(nn.Sequential):
    """Convolution and pixel shuffle, once per factor of 2 (or once for a factor of 3)."""

    def __init__(self, upscale: int, channels: int) -> None:
        refusal = f"upsampler 'pixelshuffle' makes upscale 3 or a power of 2, not {upscale}"
        super().__init__(*shuffled(upscale, channels, refusal))


class PixelShuffleOnce(nn.Sequential):
    """One convolution and one pixel shuffle straight to the image ("lightweight" super-resolution)."""

    def __init__(self, upscale: int, channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, upscale**2 * out_channels, 3, padding=1), nn.PixelShuffle(upscale)
        )


def double_and_convolve(x: Tensor, convolution: nn.Module) -> Tensor:
    """Nearest-neighbour doubling, 3 x 3 convolution, leaky ReLU: one stage of the "nearest+conv" head."""
    return F.leaky_relu(convolution(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
