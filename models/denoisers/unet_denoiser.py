"""The convolutional denoiser of DDPM (Ho et al. 2020) with ADM's options (Dhariwal and Nichol 2021).

Residual blocks that are told the time step, attention at chosen levels, and skips from the way down to the way
up. The layers are those of diffusers' `UNet2DModel`, in number and size, so that the two agree in parameters and
multiply-adds; written here because the package is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import UNetDenoiserModelConfig
from swinmr_profiling.models.denoisers.denoiser_inputs import denoiser_inputs, timestep_embedding
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.recomputation.recomputed_modules import recomputed

# Width of the time embedding over the base channels.
EMBEDDING_RATIO = 4
NORM_EPS = 1e-5


def _zeroed(layer: nn.Module) -> nn.Module:
    """A layer that starts at 0, so that its block starts as the identity (ADM's `zero_module`)."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class ResidualBlock(nn.Module):
    """norm, SiLU, convolution, twice, around a shortcut; the time step enters between the two."""

    def __init__(
        self,
        channels: int,
        out_channels: int,
        embed_dim: int,
        groups: int,
        drop_rate: float,
        scale_shift: bool,
    ) -> None:
        super().__init__()
        self.scale_shift = scale_shift
        self.norm1 = nn.GroupNorm(groups, channels, NORM_EPS)
        self.conv1 = nn.Conv2d(channels, out_channels, 3, padding=1)
        self.time = nn.Linear(embed_dim, (1 + scale_shift) * out_channels)
        self.norm2 = nn.GroupNorm(groups, out_channels, NORM_EPS)
        self.dropout = nn.Dropout(drop_rate)
        self.conv2 = _zeroed(nn.Conv2d(out_channels, out_channels, 3, padding=1))
        same = channels == out_channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out_channels, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x (B, C, H, W), embedding (B, E) to (B, C', H, W)."""
        features = self.conv1(F.silu(self.norm1(x)))
        time = self.time(F.silu(embedding))[:, :, None, None]
        if self.scale_shift:
            scale, shift = time.chunk(2, dim=1)
            features = self.norm2(features) * (1 + scale) + shift
        else:
            features = self.norm2(features + time)
        return self.shortcut(x) + self.conv2(self.dropout(F.silu(features)))


class SpatialAttention(nn.Module):
    """Self-attention of all pixels of a feature map, added to it."""

    def __init__(self, channels: int, head_channels: int, groups: int) -> None:
        super().__init__()
        self.heads = channels // head_channels
        self.norm = nn.GroupNorm(groups, channels, NORM_EPS)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = _zeroed(nn.Linear(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same."""
        batch, channels, height, width = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        qkv = self.qkv(tokens).reshape(batch, height * width, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.proj(attended).transpose(1, 2).reshape(batch, channels, height, width)


class Stage(nn.Module):
    """A residual block, and attention behind it at the levels that have it: what checkpointing recomputes."""

    def __init__(self, block: ResidualBlock, attention: SpatialAttention | None) -> None:
        super().__init__()
        self.block = block
        self.attention = nn.Identity() if attention is None else attention

    def forward(self, x: Tensor, embedding: Tensor, skip: Tensor | None = None) -> Tensor:
        """x and skip (B, C, H, W) each, concatenated here so that a checkpoint keeps no copy of both."""
        x = x if skip is None else torch.cat([x, skip], dim=1)
        return self.attention(self.block(x, embedding))


class Upsample(nn.Module):
    """Twice the sides: nearest neighbour, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Level(nn.Module):
    """The stages of one resolution, and the way to the next (`resample`), except at the last."""

    def __init__(self, stages: Sequence[Stage], resample: nn.Module | None) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.resample = resample


def _levels(modules: nn.ModuleList) -> Iterable[Level]:
    levels: Any = modules  # torch says Module
    return levels


class UNetDenoiser(nn.Module):
    """Noisy images (and conditions) and their time steps to a prediction of `out_chans` channels.

    Args:
        in_chans, out_chans: channels of the input, condition included, and of the prediction.
        channels: of each level, from the finest on.
        attention_levels: numbers of the levels with attention, 0 the finest. The middle always attends.
        recompute: whether the backward pass computes each stage again instead of finding it saved.

    Sides of images must be divisible by 2 to the number of levels less one. The last convolution starts at 0.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        base_channels: int,
        channels: Sequence[int],
        *,
        num_res_blocks: int = 2,
        attention_levels: Sequence[int] = (),
        head_channels: int = 64,
        num_groups: int = 32,
        scale_shift: bool = True,
        drop_rate: float = 0.0,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.base_channels, self.recompute = base_channels, recompute
        embed_dim = EMBEDDING_RATIO * base_channels

        def stage(before: int, after: int, attends: bool) -> Stage:
            block = ResidualBlock(before, after, embed_dim, num_groups, drop_rate, scale_shift)
            return Stage(block, SpatialAttention(after, head_channels, num_groups) if attends else None)

        self.time_mlp = nn.Sequential(
            nn.Linear(base_channels, embed_dim), nn.SiLU(), nn.Linear(embed_dim, embed_dim)
        )
        self.conv_in = nn.Conv2d(in_chans, base_channels, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, width = [base_channels], base_channels
        last = len(channels) - 1
        for level, count in enumerate(channels):
            befores = (width, *[count] * (num_res_blocks - 1))
            stages = [stage(before, count, level in attention_levels) for before in befores]
            skips += [count] * num_res_blocks
            width, resample = count, None
            if level < last:
                resample = nn.Conv2d(width, width, 3, stride=2, padding=1)
                skips.append(width)
            self.down.append(Level(stages, resample))
        self.middle = nn.ModuleList([stage(width, width, True), stage(width, width, False)])
        for level, count in reversed(list(enumerate(channels))):
            befores = (width, *[count] * num_res_blocks)
            stages = [stage(before + skips.pop(), count, level in attention_levels) for before in befores]
            width = count
            self.up.append(Level(stages, Upsample(width) if level else None))
        self.norm_out = nn.GroupNorm(num_groups, width, NORM_EPS)
        self.conv_out = _zeroed(nn.Conv2d(width, out_chans, 3, padding=1))

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        """x (B, in_chans, H, W), timesteps (B,), whole numbers, to (B, out_chans, H, W)."""
        embedding = self.time_mlp(timestep_embedding(timesteps, self.base_channels).to(x.dtype))
        run = partial(recomputed, when=self.recompute)
        x = self.conv_in(x)
        skips = [x]
        for level in _levels(self.down):
            for stage in level.stages:
                x = run(stage, x, embedding)
                skips.append(x)
            if level.resample is not None:
                x = level.resample(x)
                skips.append(x)
        for stage in self.middle:
            x = run(stage, x, embedding)
        for level in _levels(self.up):
            for stage in level.stages:
                x = run(stage, x, embedding, skips.pop())
            if level.resample is not None:
                x = level.resample(x)
        return self.conv_out(F.silu(self.norm_out(x)))


def build_unet_denoiser(config: ExperimentConfig) -> BuiltModel:
    """The U-Net of the model section, with its image (condition behind the noisy one) and its time step."""
    model = config.model_section(UNetDenoiserModelConfig)
    shorter = min(model.image_hw)
    levels = len(model.channel_multipliers)
    module = UNetDenoiser(
        model.network_input_channels,
        model.in_chans,
        model.base_channels,
        [model.base_channels * multiplier for multiplier in model.channel_multipliers],
        num_res_blocks=model.num_res_blocks,
        attention_levels=[
            level for level in range(levels) if shorter // 2**level in model.attention_resolutions
        ],
        head_channels=model.head_channels,
        num_groups=model.num_groups,
        scale_shift=model.scale_shift,
        drop_rate=model.drop_rate,
        recompute=config.training.network_checkpointing != "none",
    )
    return BuiltModel("unet_denoiser", module, denoiser_inputs(config, model))
