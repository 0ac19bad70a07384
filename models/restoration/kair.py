"""Networks of KAIR's option files beside those of spandrel: MSRResNet0 (and DPSR's prior), IMDN, SRMD and FFDNet.

Ledig et al. 2017; Zhang et al. 2019 (DPSR); Hui et al. 2019 (IMDN, as simplified for AIM 2019); Zhang et al. 2018
(SRMD, FFDNet). `act_mode`: the last letter is the activation (R ReLU, L leaky ReLU), a B before it batch norm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from swinmr_profiling.models.restoration.residual import conv3x3

ACTIVATIONS = "R", "L"
UPSAMPLERS = "upconv", "pixelshuffle", "convtranspose"


def activated(layer: nn.Module, channels: int, act_mode: str, slope: float = 0.2) -> list[nn.Module]:
    """A convolution with what follows it. Raises ValueError for a letter that is none of B, R and L."""
    kinds = {
        "B": lambda: nn.BatchNorm2d(channels, momentum=0.9, eps=1e-4),
        "R": lambda: nn.ReLU(inplace=True),
        "L": lambda: nn.LeakyReLU(slope, inplace=True),
    }
    if not set(act_mode) <= set(kinds):
        raise ValueError(f"act_mode {act_mode!r}: R, L, BR or BL is expected")
    return [layer, *(kinds[letter]() for letter in act_mode)]


def enlarging(mode: str, in_chans: int, out_chans: int, scale: int, act_mode: str = "") -> list[nn.Module]:
    """One enlargement by `scale`. Raises ValueError for an unknown `upsample_mode`."""
    if mode == "upconv":
        up = nn.Upsample(scale_factor=scale, mode="nearest")
        return [up, *activated(conv3x3(in_chans, out_chans), out_chans, act_mode)]
    if mode == "pixelshuffle":
        conv, shuffle = conv3x3(in_chans, out_chans * scale**2), nn.PixelShuffle(scale)
        return [conv, *activated(shuffle, out_chans, act_mode)]
    if mode == "convtranspose":
        return activated(nn.ConvTranspose2d(in_chans, out_chans, scale, scale), out_chans, act_mode)
    raise ValueError(f"upsample_mode {mode!r}: one of {', '.join(UPSAMPLERS)} is expected")


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W), as it came."""
        return x + self.body(x)


class Stack(nn.Module):
    """Layers one behind the other, called `model` in the names of KAIR's weights."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.model = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_nc, H, W) to (B, out_nc, upscale H, upscale W)."""
        return self.model(x)


class MSRResNet0(Stack):
    """SRResNet without batch norm; with a noise map as a fourth channel it is DPSR's prior. upscale: 3, or 2^n."""

    def __init__(
        self,
        in_nc: int = 3,
        out_nc: int = 3,
        nc: int = 64,
        nb: int = 16,
        upscale: int = 4,
        act_mode: str = "R",
        upsample_mode: str = "upconv",
    ) -> None:
        steps = {1: [], 2: [2], 3: [3], 4: [2, 2], 8: [2, 2, 2]}.get(upscale)
        if steps is None:
            raise ValueError(f"upscale {upscale}: 1, 2, 3, 4 or 8 is expected")
        blocks = [Residual(*activated(conv3x3(nc, nc), nc, act_mode), conv3x3(nc, nc)) for _ in range(nb)]
        ups = [layer for step in steps for layer in enlarging(upsample_mode, nc, nc, step, act_mode)]
        tail = [*activated(conv3x3(nc, nc), nc, act_mode), conv3x3(nc, out_nc, bias=False)]
        super().__init__(conv3x3(in_nc, nc), Residual(*blocks, conv3x3(nc, nc)), *ups, *tail)


class DistillationBlock(nn.Module):
    """Four convolutions, of which three keep a quarter of the channels and hand the others on (Hui et al. 2019)."""

    def __init__(self, nc: int, act_mode: str, slope: float) -> None:
        super().__init__()
        self.kept = nc // 4
        rest = nc - self.kept
        self.stages = nn.ModuleList(
            nn.Sequential(*activated(conv3x3(given, nc), nc, act_mode, slope)) for given in (nc, rest, rest)
        )
        self.last = conv3x3(rest, self.kept)
        self.fusion = nn.Conv2d(4 * self.kept, nc, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, nc, H, W), as it came."""
        kept, rest = [], x
        for stage in self.stages:
            part, rest = stage(rest).split([self.kept, x.shape[1] - self.kept], dim=1)
            kept.append(part)
        return x + self.fusion(torch.cat([*kept, self.last(rest)], 1))


class IMDN(Stack):
    """Information multi-distillation network, as simplified by KAIR's authors."""

    def __init__(
        self,
        in_nc: int = 3,
        out_nc: int = 3,
        nc: int = 64,
        nb: int = 8,
        upscale: int = 4,
        act_mode: str = "L",
        upsample_mode: str = "pixelshuffle",
        negative_slope: float = 0.05,
    ) -> None:
        blocks = [DistillationBlock(nc, act_mode, negative_slope) for _ in range(nb)]
        ups = enlarging(upsample_mode, nc, out_nc, upscale)
        super().__init__(conv3x3(in_nc, nc), Residual(*blocks, conv3x3(nc, nc)), *ups)


def _plain_stack(in_chans: int, nc: int, nb: int, act_mode: str) -> list[nn.Module]:
    """A convolution with its activation, and nb - 2 with `act_mode`."""
    layers = activated(conv3x3(in_chans, nc), nc, act_mode[-1:])
    for _ in range(nb - 2):
        layers += activated(conv3x3(nc, nc), nc, act_mode)
    return layers


class SRMD(Stack):
    """Plain convolutions on the image with its stretched kernel and noise level (15 + 1 channels)."""

    def __init__(
        self,
        in_nc: int = 19,
        out_nc: int = 3,
        nc: int = 128,
        nb: int = 12,
        upscale: int = 4,
        act_mode: str = "R",
        upsample_mode: str = "pixelshuffle",
    ) -> None:
        ups = enlarging(upsample_mode, nc, out_nc, upscale)
        super().__init__(*_plain_stack(in_nc, nc, nb, act_mode), *ups)


class FFDNet(nn.Module):
    """Plain convolutions at half the resolution, with the noise level as one more channel."""

    def __init__(
        self, in_nc: int = 1, out_nc: int = 1, nc: int = 64, nb: int = 15, act_mode: str = "R"
    ) -> None:
        super().__init__()
        self.model = nn.Sequential(*_plain_stack(4 * in_nc + 1, nc, nb, act_mode), conv3x3(nc, 4 * out_nc))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (B, in_nc, H, W). sigma: (B, 1, 1, 1), the noise's deviation. (B, out_nc, H, W)."""
        height, width = x.shape[-2:]
        padded = functional.pad(x, (0, width % 2, 0, height % 2), mode="replicate")
        halved = functional.pixel_unshuffle(padded, 2)
        level = sigma.expand(-1, 1, *halved.shape[-2:])
        result = functional.pixel_shuffle(self.model(torch.cat([halved, level], 1)), 2)
        return result[..., :height, :width]
