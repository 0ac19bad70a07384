"""Residual networks of super-resolution without batch norm: EDSR, MSRResNet and ArtCNN.

Lim et al. 2017 (EDSR); Ledig et al. 2017 (SRResNet), as Wang et al. 2018 modified it. Names of weights of the two are
those of BasicSR's published files. Each takes (B, C, H, W) and gives (B, C', scale H, scale W).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from swinmr_profiling.models.swin.upsampling import DIV2K_MEAN, shuffled


def conv3x3(in_chans: int, out_chans: int, *, bias: bool = True) -> nn.Conv2d:
    """A 3 x 3 convolution that keeps the size."""
    return nn.Conv2d(in_chans, out_chans, 3, padding=1, bias=bias)


class ResidualBlock(nn.Module):
    """x + res_scale x (convolution, ReLU, convolution) of x, without batch norm."""

    def __init__(self, channels: int, res_scale: float = 1.0) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv3x3(channels, channels), conv3x3(channels, channels)
        self.relu = nn.ReLU(inplace=True)
        self.res_scale = res_scale

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W), as it came."""
        return x + self.conv2(self.relu(self.conv1(x))) * self.res_scale


class EDSR(nn.Module):
    """Enhanced deep residual network (Lim et al. 2017).

    upscale: a power of 2, or 3. img_range: what a value of 1 becomes inside. rgb_mean: taken off, and added again.
    """

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        num_feat: int = 64,
        num_block: int = 16,
        upscale: int = 4,
        res_scale: float = 1.0,
        img_range: float = 255.0,
        rgb_mean: Sequence[float] = DIV2K_MEAN,
    ) -> None:
        super().__init__()
        self.img_range = img_range
        self.mean: Tensor
        self.register_buffer("mean", torch.tensor(list(rgb_mean)).view(1, -1, 1, 1), persistent=False)
        self.conv_first = conv3x3(num_in_ch, num_feat)
        self.body = nn.Sequential(*(ResidualBlock(num_feat, res_scale) for _ in range(num_block)))
        self.conv_after_body = conv3x3(num_feat, num_feat)
        refusal = f"scale {upscale}: a power of 2, or 3, is expected"
        self.upsample = nn.Sequential(*shuffled(upscale, num_feat, refusal))
        self.conv_last = conv3x3(num_feat, num_out_ch)

    def forward(self, x: Tensor) -> Tensor:
        """(B, num_in_ch, H, W) to (B, num_out_ch, upscale H, upscale W)."""
        shallow = self.conv_first((x - self.mean) * self.img_range)
        deep = self.conv_after_body(self.body(shallow)) + shallow
        return self.conv_last(self.upsample(deep)) / self.img_range + self.mean


class MSRResNet(nn.Module):
    """SRResNet without batch norm, which adds to a bilinear enlargement (Wang et al. 2018). upscale: 2, 3 or 4."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        num_feat: int = 64,
        num_block: int = 16,
        upscale: int = 4,
    ) -> None:
        super().__init__()
        if upscale not in (2, 3, 4):
            raise ValueError(f"upscale {upscale}: 2, 3 or 4 is expected")
        self.upscale = upscale
        self.conv_first = conv3x3(num_in_ch, num_feat)
        self.body = nn.Sequential(*(ResidualBlock(num_feat) for _ in range(num_block)))
        step = 3 if upscale == 3 else 2
        self.upconv1 = conv3x3(num_feat, step * step * num_feat)
        self.upconv2 = conv3x3(num_feat, 4 * num_feat) if upscale == 4 else None
        self.pixel_shuffle = nn.PixelShuffle(step)
        self.conv_hr = conv3x3(num_feat, num_feat)
        self.conv_last = conv3x3(num_feat, num_out_ch)
        self.lrelu = nn.LeakyReLU(0.1, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, num_in_ch, H, W) to (B, num_out_ch, upscale H, upscale W)."""
        features = self.body(self.lrelu(self.conv_first(x)))
        for conv in filter(None, (self.upconv1, self.upconv2)):
            features = self.lrelu(self.pixel_shuffle(conv(features)))
        residual = self.conv_last(self.lrelu(self.conv_hr(features)))
        return residual + functional.interpolate(x, scale_factor=self.upscale, mode="bilinear")


class ArtCNN(nn.Module):
    """Residual blocks of three convolutions with ReLUs between them (Artoriuz, ArtCNN). kernel_size: odd."""

    def __init__(
        self, in_ch: int = 3, scale: int = 4, filters: int = 96, n_block: int = 16, kernel_size: int = 3
    ) -> None:
        super().__init__()

        def conv(given: int, made: int) -> nn.Conv2d:
            return nn.Conv2d(given, made, kernel_size, padding="same")

        blocks = [
            nn.Sequential(
                conv(filters, filters), nn.ReLU(), conv(filters, filters), nn.ReLU(), conv(filters, filters)
            )
            for _ in range(n_block)
        ]
        self.first = conv(in_ch, filters)
        self.blocks = nn.ModuleList(blocks)
        self.last = conv(filters, filters)
        self.upsample = nn.Sequential(conv(filters, in_ch * scale**2), nn.PixelShuffle(scale))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_ch, H, W) to (B, in_ch, scale H, scale W)."""
        shallow = features = self.first(x)
        for block in self.blocks:
            features = features + block(features)
        return self.upsample(self.last(features) + shallow)
