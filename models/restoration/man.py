"""MAN, the multi-scale attention network (Wang et al. 2024): large kernels as depthwise and dilated convolutions.

Names of weights are those of the published files. Every block keeps the size: (B, C, H, W), as it came.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from swinmr_profiling.models.swin.upsampling import DIV2K_MEAN

# Of each third of the channels: the kernel of the depthwise convolution, of the dilated one, and its dilation.
SCALES = {"LKA3": (3, 5, 2), "LKA5": (5, 7, 3), "LKA7": (7, 9, 4)}


def depthwise(channels: int, kernel: int, dilation: int = 1) -> nn.Conv2d:
    """A depthwise convolution that keeps the size."""
    padding = kernel // 2 * dilation
    return nn.Conv2d(channels, channels, kernel, padding=padding, dilation=dilation, groups=channels)


def pointwise(in_chans: int, out_chans: int) -> nn.Conv2d:
    """A convolution of single pixels."""
    return nn.Conv2d(in_chans, out_chans, 1)


class ChannelNorm(nn.Module):
    """Layer norm of each pixel's channels, written out: what each step makes is kept for the backward pass."""

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class LargeKernelAttention(nn.Module):
    """Gated attention at three scales, each on a third of the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels % 3:
            raise ValueError(f"n_feats {channels} is not divisible by 3")
        third = channels // 3
        self.norm = ChannelNorm(channels)
        self.scale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        for name, (first, second, dilation) in SCALES.items():
            attention = [depthwise(third, first), depthwise(third, second, dilation), pointwise(third, third)]
            self.add_module(name, nn.Sequential(*attention))
            self.add_module(f"X{first}", depthwise(third, first))
        self.proj_first = nn.Sequential(pointwise(channels, 2 * channels))
        self.proj_last = nn.Sequential(pointwise(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        shortcut = x.clone()
        gate, x = self.proj_first(self.norm(x)).chunk(2, dim=1)
        thirds = [
            getattr(self, name)(third) * getattr(self, f"X{SCALES[name][0]}")(third)
            for name, third in zip(SCALES, gate.chunk(3, dim=1), strict=True)
        ]
        return self.proj_last(x * torch.cat(thirds, dim=1)) * self.scale + shortcut


class GatedFeatures(nn.Module):
    """One half of the channels, convolved, gates the other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.Conv1, self.Conv2 = pointwise(channels, 2 * channels), pointwise(channels, channels)
        self.DWConv1 = depthwise(channels, 7)
        self.norm = ChannelNorm(channels)
        self.scale = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        shortcut = x.clone()
        gate, x = self.Conv1(self.norm(x)).chunk(2, dim=1)
        return self.Conv2(x * self.DWConv1(gate)) * self.scale + shortcut


class AttentionBlock(nn.Module):
    """Attention, then features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.LKA, self.LFE = LargeKernelAttention(channels), GatedFeatures(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        return self.LFE(self.LKA(x))


class Tail(nn.Module):
    """What ends a group: a large kernel that weighs its own input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv0 = nn.Sequential(pointwise(channels, channels), nn.GELU())
        self.att = nn.Sequential(
            depthwise(channels, 7), depthwise(channels, 9, 3), pointwise(channels, channels)
        )
        self.conv1 = pointwise(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        x = self.conv0(x)
        return self.conv1(x * self.att(x))


class Group(nn.Module):
    """Blocks and a tail around a shortcut."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.body = nn.ModuleList(AttentionBlock(channels) for _ in range(blocks))
        self.body_t = Tail(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        inner = x.clone()
        for block in self.body:
            inner = block(inner)
        return self.body_t(inner) + x


def colour_shift(mean: Sequence[float], sign: int) -> nn.Conv2d:
    """A convolution that adds the mean colour, or takes it off; it is not trained."""
    conv = nn.Conv2d(3, 3, 1).requires_grad_(False)
    conv.weight.data.copy_(torch.eye(3).view(3, 3, 1, 1))
    assert conv.bias is not None
    conv.bias.data.copy_(sign * torch.tensor(mean))
    return conv


class MAN(nn.Module):
    """n_feats: divisible by 3. n_colors: 3, as the colours that are taken off first."""

    def __init__(
        self,
        n_resblocks: int = 36,
        n_resgroups: int = 1,
        n_colors: int = 3,
        n_feats: int = 180,
        scale: int = 2,
    ) -> None:
        super().__init__()
        if n_colors != 3:
            raise ValueError(f"n_colors {n_colors}: MAN takes colours, which are 3")
        self.sub_mean, self.add_mean = colour_shift(DIV2K_MEAN, -1), colour_shift(DIV2K_MEAN, 1)
        self.head = nn.Conv2d(n_colors, n_feats, 3, padding=1)
        self.body = nn.ModuleList(Group(n_feats, n_resblocks) for _ in range(n_resgroups))
        self.body_t = nn.Conv2d(n_feats, n_feats, 3, padding=1) if n_resgroups > 1 else None
        self.tail = nn.Sequential(
            nn.Conv2d(n_feats, n_colors * scale**2, 3, padding=1), nn.PixelShuffle(scale)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) to (B, 3, scale H, scale W)."""
        shallow = features = self.head(self.sub_mean(x))
        for group in self.body:
            features = group(features)
        if self.body_t is not None:
            features = self.body_t(features) + shallow
        return self.add_mean(self.tail(features))
