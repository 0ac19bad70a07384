"""Small networks of each kind of support, as built models."""

import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.registry import build_model


def configured(**model):
    """The network of a config's model section, every weight away from zero."""
    torch.manual_seed(0)
    built = build_model(config_from_dict({"model": model, "data": {"use_patches": False}}))
    with torch.no_grad():
        for parameter in built.module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return built


def edsr(blocks=2, upscale=2):
    kwargs = {"num_in_ch": 1, "num_out_ch": 1, "num_feat": 6, "num_block": blocks, "upscale": upscale}
    kwargs |= {"rgb_mean": [0.0], "img_range": 1.0}
    return configured(net_type="restoration", architecture="EDSR", img_size=48, kwargs=kwargs)


def swinmr(window=4, depths=(2,), size=48, **options):
    heads = [2] * len(depths)
    sizes = {"img_size": size, "window_size": window, "embed_dim": 8}
    return configured(net_type="swinmr", depths=list(depths), num_heads=heads, **sizes, **options)


def of_module(module, channels=1, side=32):
    """A module that takes an image (B, channels, side, side)."""
    spec = (InputSpec((channels, side, side)),)
    return BuiltModel("custom", module, {"inference": spec, "training": spec, "cross_check": spec})


class SqueezeExcite(nn.Module):
    """x times a gate of its mean (Hu et al. 2018)."""

    def __init__(self, channels=4):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x * self.gate(self.pool(x)).sigmoid()


class GlobalAttention(nn.Module):
    """Each pixel attends to all."""

    def __init__(self, channels=4):
        super().__init__()
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x):
        rows = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(rows).chunk(3, -1)
        rows = self.proj((q @ k.transpose(1, 2)).softmax(-1) @ v)
        return rows.transpose(1, 2).view_as(x)


class PositionTable(nn.Module):
    """A table of positions, enlarged to the image: nothing spreads, and a pixel's place changes it all the same."""

    def __init__(self, channels=4, side=8):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, channels, side, side))

    def forward(self, x):
        return x + nn.functional.interpolate(self.table, x.shape[-2:], mode="bilinear")


class TwoStrides(nn.Module):
    """Half the size and back by functions: no module's result says so."""

    def __init__(self, channels=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels * 4, channels * 4, 3, 3))

    def forward(self, x):
        small = nn.functional.pixel_unshuffle(x, 2)
        return nn.functional.pixel_shuffle(nn.functional.conv2d(small, self.weight, padding=1), 2)


class SumAlongTheEdge(nn.Module):
    """A convolution that wraps around the image."""

    def __init__(self, channels=4):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return self.conv(x)


class MeanOfLargeImages(nn.Module):
    """Takes the mean of the whole image off, but only off images whose sides are both long."""

    def forward(self, x):
        return x - x.mean((2, 3), keepdim=True) if min(x.shape[-2:]) >= 50 else x


class PadsBothSides(nn.Module):
    """Half of what a multiple of 8 needs on each side: windows of an odd image begin before it."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 8, stride=8), nn.ConvTranspose2d(4, 1, 8, stride=8)

    def forward(self, x):
        height, width = x.shape[-2:]
        down, across = -height % 8, -width % 8
        top, left = down // 2, across // 2
        padded = nn.functional.pad(x, (left, across - left, top, down - top), mode="replicate")
        return x + self.up(self.down(padded))[..., top : top + height, left : left + width]


class SkipResized(nn.Module):
    """Half the size, and enlarged to what came in: by no factor of 2 where that was odd."""

    def __init__(self):
        super().__init__()
        self.down, self.join = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Conv2d(5, 1, 3, padding=1)

    def forward(self, x):
        small = nn.functional.interpolate(self.down(x), x.shape[-2:], mode="bilinear")
        return self.join(torch.cat([small, x], 1))


class Warps(nn.Module):
    """Reads pixels where a convolution of the image sends it: grid_sample, or a deformable convolution."""

    def __init__(self, deformable):
        super().__init__()
        self.places = nn.Conv2d(1, 18 if deformable else 2, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(1, 1, 3, 3))
        self.deformable = deformable

    def forward(self, x):
        places = self.places(x)
        if self.deformable:
            from torchvision.ops import deform_conv2d

            return deform_conv2d(x, places, self.weight, padding=1)
        grid = nn.functional.affine_grid(torch.eye(2, 3).to(x)[None], x.shape, align_corners=False)
        pixels = torch.tensor([2 / x.shape[-1], 2 / x.shape[-2]]).to(x)
        return nn.functional.grid_sample(x, grid + places.movedim(1, -1) * pixels, align_corners=False)


def around(module, channels=4):
    """Convolutions before and after: (B, 1, H, W) in and out."""
    return of_module(
        nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), module, nn.ReLU(), nn.Conv2d(channels, 1, 3, padding=1)
        )
    )
