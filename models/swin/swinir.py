"""SwinIR (Liang et al. 2021), which on MRI without upsampling is SwinMR (Huang et al. 2022).

Written anew from the papers, with the official names in the state dict, so that published checkpoints load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.models.recomputation.recomputed_modules import recomputed
from swinmr_profiling.models.swin.attention import FORCED_WAYS, attention_policy
from swinmr_profiling.models.swin.block_layers import BlockOptions, has_hooks, normalise, product_dtype
from swinmr_profiling.models.swin.residual_group import ResidualSwinGroup, Workspace, residual_convolution
from swinmr_profiling.models.swin.swin_block import SwinBlock
from swinmr_profiling.models.swin.upsampling import (
    DIV2K_MEAN,
    HEAD_CHANNELS,
    PixelShuffleOnce,
    PixelShuffleStages,
    double_and_convolve,
)

CHECKPOINTING = ("none", "light", "full")
UPSAMPLERS = ("", "pixelshuffle", "pixelshuffledirect", "nearest+conv")
NEAREST_DOUBLINGS = {2: 1, 4: 2, 8: 3}


def in_fp32(x: Tensor) -> Tensor:
    """Half precision to fp32; fp32 and fp64 stay."""
    return x.float() if x.dtype.itemsize < torch.float32.itemsize else x


class PatchEmbedding(nn.Module):
    """Patches are pixels here, so all that is left of Swin's patch embedding is its norm, on (B, H, W, C)."""

    def __init__(self, channels: int, patch_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels) if patch_norm else None

    def forward(self, x: Tensor) -> Tensor:
        return x if self.norm is None else normalise(self.norm, x)


class SwinIR(nn.Module):
    """Image (B, in_chans, H, W) to image (B, out_chans, H * upscale, W * upscale), any H and W.

    H and W are reflect-padded on the right and bottom to a multiple of the window and cropped again.
    Defaults are the published SwinMR: 11,497,681 parameters, 799.87 GMACs at 256 x 256.

    gradient_checkpointing, what the backward pass computes again instead of finding it saved: "none"; "light":
    LayerNorm, GELU and attention probabilities; "full": each residual group.
    attention: "auto" lets models/swin/attention.py choose; one of its FORCED_WAYS forces a choice. Outputs are
    equal. The residual stream is fp32 whatever the dtype of the weights or of autocast.
    Raises ValueError for options that fit no network, and in forward for images too small to reflect-pad.
    """

    def __init__(
        self,
        *,
        img_size: int | Sequence[int] = 256,
        in_chans: int = 1,
        out_chans: int | None = None,
        upscale: int = 1,
        img_range: float = 1.0,
        window_size: int = 8,
        depths: Sequence[int] = (6,) * 6,
        embed_dim: int = 180,
        num_heads: Sequence[int] = (6,) * 6,
        mlp_ratio: float = 2.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        ape: bool = False,
        patch_norm: bool = True,
        upsampler: str = "",
        resi_connection: str = "1conv",
        gradient_checkpointing: str = "none",
        attention: str = "auto",
    ) -> None:
        super().__init__()
        out_chans = in_chans if out_chans is None else out_chans
        self.image_hw = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        self.window_size, self.upscale, self.img_range = window_size, upscale, img_range
        self.upsampler, self.drop_rate = upsampler, drop_rate
        self.gradient_checkpointing, self.attention = gradient_checkpointing, attention
        self._check_options(in_chans, out_chans, embed_dim, depths, num_heads)

        # With an image of one window there is nothing to shift (as in the official network, where the sizes
        # of construction decide, not those of the forward).
        shift = 0 if min(self.image_hw) <= window_size else window_size // 2
        self.shift = shift
        # Indexed in plain Python: torch.linspace(...).item() would fail on the meta device.
        last_block = max(sum(depths) - 1, 1)
        drop_path_rates = [drop_path_rate * index / last_block for index in range(sum(depths))]

        mean = DIV2K_MEAN if in_chans == 3 else (0.0,)
        self.mean: Tensor
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.conv_first = nn.Conv2d(in_chans, embed_dim, 3, padding=1)
        self.patch_embed = PatchEmbedding(embed_dim, patch_norm)
        self.absolute_pos_embed: nn.Parameter | None = None
        if ape:
            self.absolute_pos_embed = nn.Parameter(torch.zeros(1, math.prod(self.image_hw), embed_dim))
            nn.init.trunc_normal_(self.absolute_pos_embed, std=0.02)
        self.layers = nn.ModuleList()
        for group, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            first = sum(depths[:group])
            blocks = [
                SwinBlock(
                    embed_dim,
                    heads,
                    window_size,
                    shift if index % 2 else 0,
                    mlp_ratio=mlp_ratio,
                    qkv_bias=qkv_bias,
                    dropout=drop_rate,
                    attention_dropout=attn_drop_rate,
                    drop_path_rate=drop_path_rates[first + index],
                )
                for index in range(depth)
            ]
            self.layers.append(ResidualSwinGroup(blocks, embed_dim, resi_connection))
        self.norm = nn.LayerNorm(embed_dim)
        self.conv_after_body = residual_convolution(embed_dim, resi_connection)
        self._build_head(embed_dim, out_chans)
        self.apply(_init_linear)

    def _check_options(
        self, in_chans: int, out_chans: int, embed_dim: int, depths: Sequence[int], num_heads: Sequence[int]
    ) -> None:
        upscale, upsampler, attention = self.upscale, self.upsampler, self.attention
        checkpointing = self.gradient_checkpointing
        # Each with whether it applies.
        problems = {
            f"{len(depths)} depths but {len(num_heads)} num_heads: one of each per group": (
                len(depths) != len(num_heads)
            ),
            **{f"embed_dim {embed_dim} is not divisible by {n} heads": embed_dim % n > 0 for n in num_heads},
            f"upsampler {upsampler!r} is not one of {UPSAMPLERS}": upsampler not in UPSAMPLERS,
            f"upsampler 'nearest+conv' makes upscale 2, 4 or 8, not {upscale}": (
                upsampler == "nearest+conv" and upscale not in NEAREST_DOUBLINGS
            ),
            f"upscale {upscale} needs an upsampler: one of {UPSAMPLERS[1:]}": not upsampler and upscale != 1,
            f"the input ({in_chans} channels) cannot be added to {out_chans} output channels": (
                not upsampler and in_chans not in (1, out_chans)
            ),
            f"the RGB mean of 3 input channels does not fit {out_chans} output channels": (
                in_chans == 3 and out_chans not in (1, 3)
            ),
            f"gradient_checkpointing is one of {CHECKPOINTING}, not {checkpointing!r}": (
                checkpointing not in CHECKPOINTING
            ),
            f"attention is 'auto' or one of {FORCED_WAYS}, not {attention!r}": (
                attention not in ("auto", *FORCED_WAYS)
            ),
        }
        for problem, applies in problems.items():
            if applies:
                raise ValueError(problem)

    def _build_head(self, embed_dim: int, out_chans: int) -> None:
        if self.upsampler == "pixelshuffledirect":
            self.upsample: nn.Sequential = PixelShuffleOnce(self.upscale, embed_dim, out_chans)
            return
        if not self.upsampler:
            self.conv_last = nn.Conv2d(embed_dim, out_chans, 3, padding=1)
            return
        self.conv_before_upsample = nn.Sequential(
            nn.Conv2d(embed_dim, HEAD_CHANNELS, 3, padding=1), nn.LeakyReLU(inplace=True)
        )
        if self.upsampler == "pixelshuffle":
            self.upsample = PixelShuffleStages(self.upscale, HEAD_CHANNELS)
        else:
            for stage in range(NEAREST_DOUBLINGS[self.upscale]):
                convolution = nn.Conv2d(HEAD_CHANNELS, HEAD_CHANNELS, 3, padding=1)
                self.add_module(f"conv_up{stage + 1}", convolution)
            self.conv_hr = nn.Conv2d(HEAD_CHANNELS, HEAD_CHANNELS, 3, padding=1)
        self.conv_last = nn.Conv2d(HEAD_CHANNELS, out_chans, 3, padding=1)

    def pad_to_windows(self, image: Tensor) -> Tensor:
        """Reflect-pads (B, C, H, W) right and bottom to multiples of the window."""
        height, width = image.shape[-2:]
        bottom, right = -height % self.window_size, -width % self.window_size
        if bottom >= height or right >= width:
            raise ValueError(
                f"an image of {height} x {width} cannot be reflect-padded to windows of {self.window_size}: "
                f"each side must be longer than its padding ({bottom} and {right})"
            )
        if bottom or right:
            image = F.pad(image, (0, right, 0, bottom), mode="reflect")
        return image

    def deep_features(self, shallow: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, H, W): embedding norm, residual groups, final norm."""
        x = self.patch_embed(in_fp32(shallow).permute(0, 2, 3, 1))
        _, height, width, channels = x.shape
        if self.absolute_pos_embed is not None:
            if (height, width) != self.image_hw:
                raise ValueError(
                    f"with ape the network takes its own img_size {self.image_hw} only, not {(height, width)}"
                )
            x = x + self.absolute_pos_embed.view(1, height, width, channels)
        x = F.dropout(x, self.drop_rate, self.training)
        options = BlockOptions(self.attention, self.gradient_checkpointing == "light")
        workspace = self._workspace(x)
        for group in self.layers:
            arguments = (x, self.window_size, self.shift, options, workspace)
            x = recomputed(group, *arguments, when=self.gradient_checkpointing == "full")
        x = normalise(self.norm, x)
        return x.to(product_dtype(x.device.type, self.norm.weight)).permute(0, 3, 1, 2)

    def _workspace(self, x: Tensor) -> Workspace | None:
        """Buffers to share between the blocks, where nobody wants to keep what a block returns."""
        if (
            torch.compiler.is_compiling()
            or torch.is_grad_enabled()
            or any(map(has_hooks, self.layers.modules()))
        ):
            return None
        options = BlockOptions(self.attention)
        return Workspace() if {b.attention_way(x, options) for b in self.blocks()} == {"blocked"} else None

    def groups(self) -> Iterable[ResidualSwinGroup]:
        """The residual groups, in order."""
        groups: Any = self.layers  # torch says Module
        return groups

    def blocks(self) -> list[SwinBlock]:
        """Every block, in order."""
        return [block for group in self.groups() for block in group.residual_group.in_order()]

    def attention_policy(self, device_type: str, *, trains: bool, traced: bool = False) -> str:
        """The way attention goes on a device (models/swin/attention.py), for a record of what was measured.

        trains: a training step, else inference; traced: under torch.compile. Ask inside the autocast context
        of the measurement.
        """
        if self.attention != "auto":
            return self.attention
        whole = all(block.can_be_blocked(torch.float32, trains) for block in self.blocks())
        return attention_policy(device_type, trains=trains, whole=whole, traced=traced)

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        image = (self.pad_to_windows(image) - self.mean) * self.img_range
        shallow = self.conv_first(image)
        features = self.conv_after_body(self.deep_features(shallow)) + shallow
        if self.upsampler == "pixelshuffledirect":
            restored = self.upsample(features)
        elif self.upsampler == "pixelshuffle":
            restored = self.conv_last(self.upsample(self.conv_before_upsample(features)))
        elif self.upsampler == "nearest+conv":
            x = self.conv_before_upsample(features)
            for stage in range(NEAREST_DOUBLINGS[self.upscale]):
                x = double_and_convolve(x, self.get_submodule(f"conv_up{stage + 1}"))
            restored = self.conv_last(F.leaky_relu(self.conv_hr(x), 0.2))
        else:
            restored = image + self.conv_last(features)
        restored = restored / self.img_range + self.mean
        return restored[..., : height * self.upscale, : width * self.upscale]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(prefix + "mean", None)  # some exports carry it as a buffer
        super()._load_from_state_dict(state_dict, prefix, *args)


def _init_linear(module: nn.Module) -> None:
    """The official initialisation: truncated normal of 0.02 for linear layers; convolutions keep torch's."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
