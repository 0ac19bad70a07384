"""SPAN without parameters in its attention (Wan et al. 2023), as SPANPlus widens it, and DySample (Liu et al. 2023).

A convolution is trained as three in a row beside a 1 x 1 one, and run as the one 3 x 3 that they amount to. Names of
weights are those of the published files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

GAIN = 2


class FoldedConv(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions and a 1 x 1 shortcut in training, one 3 x 3 convolution outside of it."""

    def __init__(self, in_chans: int, out_chans: int) -> None:
        super().__init__()
        self.sk = nn.Conv2d(in_chans, out_chans, 1)
        self.conv = nn.Sequential(
            nn.Conv2d(in_chans, GAIN * in_chans, 1),
            nn.Conv2d(GAIN * in_chans, GAIN * out_chans, 3),
            nn.Conv2d(GAIN * out_chans, out_chans, 1),
        )
        self.eval_conv = nn.Conv2d(in_chans, out_chans, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, out_chans, H, W). The border of zeros comes before the first convolution."""
        if self.training:
            return self.conv(functional.pad(x, (1, 1, 1, 1))) + self.sk(x)
        with torch.no_grad():
            self._fold()
        return self.eval_conv(x)

    def _fold(self) -> None:
        """The one convolution: in every forward anew and by convolutions, as the published code pays for it."""
        convolutions: Any = self.conv
        first, middle, last = convolutions
        kernel, bias = _in_a_row(first.weight, first.bias, middle)
        kernel, bias = _in_a_row(kernel, bias, last)
        self.eval_conv.weight.copy_(kernel + functional.pad(self.sk.weight, (1, 1, 1, 1)))
        if self.eval_conv.bias is not None and self.sk.bias is not None:
            self.eval_conv.bias.copy_(bias + self.sk.bias)


def _in_a_row(kernel: Tensor, bias: Tensor, then: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Kernel and bias of a convolution (made, given, h, w) and the one after it, as one."""
    reach = then.weight.shape[-1] - 1
    turned = kernel.flip(2, 3).transpose(0, 1)
    joined = functional.conv2d(turned, then.weight, padding=reach).transpose(0, 1).flip(2, 3)
    shifted = (then.weight * bias.view(1, -1, 1, 1)).sum((1, 2, 3))
    return joined, shifted if then.bias is None else shifted + then.bias


class AttentionBlock(nn.Module):
    """Three convolutions, whose result weighs itself: (x + y) (sigmoid(y) - 1/2). Gives the first convolution's too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = (FoldedConv(channels, channels) for _ in range(3))
        self.act1 = nn.Mish(inplace=True)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, channels, H, W), as it came, and what the first convolution made of it."""
        first = self.c1_r(x)
        third = self.c3_r(self.act1(self.c2_r(self.act1(first))))
        return (third + x) * (self.sigmoid(third) - 0.5), first


class Stage(nn.Module):
    """A row of blocks, and a 1 x 1 convolution of what its ends made."""

    def __init__(self, channels: int, blocks: int, dropout: float) -> None:
        super().__init__()
        self.block_1 = AttentionBlock(channels)
        self.block_n = nn.ModuleList(AttentionBlock(channels) for _ in range(blocks))
        self.block_end = AttentionBlock(channels)
        self.conv_2 = FoldedConv(channels, channels)
        self.conv_cat = nn.Conv2d(4 * channels, channels, 1)
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W), as it came."""
        begun = inner = self.block_1(x)[0]
        for block in self.block_n:
            inner = block(inner)[0]
        ended, first_of_last = self.block_end(inner)
        ended = self.dropout(self.conv_2(ended))
        return self.conv_cat(torch.cat([x, ended, begun, first_of_last], dim=1))


class DySample(nn.Module):
    """Enlarges by sampling where a convolution says, in groups of channels."""

    def __init__(self, in_chans: int, out_chans: int, scale: int, groups: int = 4) -> None:
        super().__init__()
        if in_chans % groups:
            raise ValueError(f"{in_chans} feature channels are not divisible by {groups} groups of DySample")
        self.scale, self.groups = scale, groups
        self.end_conv = nn.Conv2d(in_chans, out_chans, 1)
        self.offset = nn.Conv2d(in_chans, 2 * groups * scale**2, 1)
        self.scope = nn.Conv2d(in_chans, 2 * groups * scale**2, 1, bias=False)
        # Where the new pixels lie in an old one, x before y, the same in each group.
        inside = (torch.arange(scale) + 0.5) / scale - 0.5
        place = torch.stack(torch.meshgrid(inside, inside, indexing="ij")).transpose(1, 2)
        self.register_buffer("init_pos", place.repeat(1, groups, 1).reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, out_chans, scale H, scale W)."""
        batch, _, height, width = x.shape
        moved = self.offset(x) * self.scope(x).sigmoid() * 0.5 + self.init_pos
        moved = moved.view(batch, 2, -1, height, width)
        columns = torch.arange(width, dtype=x.dtype, device=x.device) + 0.5
        rows = torch.arange(height, dtype=x.dtype, device=x.device) + 0.5
        corners = torch.stack(torch.meshgrid(columns, rows, indexing="ij")).transpose(1, 2)
        size = torch.tensor([width, height], dtype=x.dtype, device=x.device).view(1, 2, 1, 1, 1)
        grid = 2 * (corners.view(1, 2, 1, height, width) + moved) / size - 1
        grid = functional.pixel_shuffle(grid.reshape(batch, -1, height, width), self.scale)
        grid = grid.view(batch, 2, -1, self.scale * height, self.scale * width)
        grid = grid.permute(0, 2, 3, 4, 1).contiguous().flatten(0, 1)
        sampled = functional.grid_sample(
            x.reshape(batch * self.groups, -1, height, width),
            grid,
            padding_mode="border",
            align_corners=False,
        )
        return self.end_conv(sampled.view(batch, -1, self.scale * height, self.scale * width))


class SPANPlus(nn.Module):
    """SPAN in stages of `blocks` inner blocks each. upsampler: "dys" (DySample), "ps" (pixel shuffle), "conv" (x1)."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        blocks: Sequence[int] | None = (4,),
        feature_channels: int = 48,
        upscale: int = 4,
        drop_rate: float = 0.0,
        upsampler: str = "dys",
    ) -> None:
        super().__init__()
        stages = [Stage(feature_channels, count, drop_rate) for count in blocks or (4,)]
        self.feats = nn.Sequential(FoldedConv(num_in_ch, feature_channels), *stages)
        if upsampler == "dys":
            self.upsampler: nn.Module = DySample(feature_channels, num_out_ch, upscale)
        elif upsampler == "ps":
            conv = nn.Conv2d(feature_channels, num_in_ch * upscale**2, 3, padding=1)
            self.upsampler = nn.Sequential(conv, nn.PixelShuffle(upscale))
        elif upsampler == "conv" and upscale == 1:
            self.upsampler = nn.Conv2d(feature_channels, num_in_ch, 3, padding=1)
        else:
            raise ValueError(
                f"upsampler {upsampler!r} at upscale {upscale}: dys, ps, or conv at 1 is expected"
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, num_in_ch, H, W) to (B, num_out_ch, upscale H, upscale W)."""
        return self.upsampler(self.feats(x))
