"""The diffusion transformer (DiT, Peebles and Xie 2023): patches as tokens, told the time step by adaLN-zero.

Attention and MLP are timm's, as in the authors' code. Positions are computed for the image at hand instead of
kept in a table, so that one network takes every size that its patches divide.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import DiTDenoiserModelConfig
from swinmr_profiling.models.denoisers.denoiser_inputs import MAX_PERIOD, denoiser_inputs, timestep_embedding
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.recomputation.recomputed_modules import recomputed

FREQUENCIES = 256
NORM_EPS = 1e-6


def position_embedding(height: int, width: int, dim: int, device: torch.device | str) -> Tensor:
    """(height x width, dim), float32: half of it says the row, half the column, each in sines and cosines.

    The fixed two-dimensional table of MAE and DiT, by which rows and columns of any number have a place.
    """
    quarter = dim // 4
    steps = torch.arange(quarter, dtype=torch.float32, device=device)
    frequencies = MAX_PERIOD ** (-steps / quarter)
    parts = []
    for count in (height, width):
        angles = torch.arange(count, dtype=torch.float32, device=device)[:, None] * frequencies
        parts.append(torch.cat([angles.sin(), angles.cos()], dim=-1))
    rows = parts[0][:, None].expand(height, width, -1)
    columns = parts[1][None].expand(height, width, -1)
    return torch.cat([columns, rows], dim=-1).reshape(height * width, dim)


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


class DiTBlock(nn.Module):
    """Attention and MLP, each scaled and shifted before and gated behind by what the time step says."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__()
        # Imported here: timm takes as long as torch itself to import, and SwinMR does not need it.
        from timm.layers import Mlp
        from timm.models.vision_transformer import Attention

        self.norm1 = nn.LayerNorm(dim, NORM_EPS, elementwise_affine=False)
        self.attn = Attention(dim, num_heads=num_heads, qkv_bias=True)
        self.norm2 = nn.LayerNorm(dim, NORM_EPS, elementwise_affine=False)
        gelu: Any = partial(nn.GELU, approximate="tanh")  # timm calls it
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act_layer=gelu)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x (B, N, D), embedding (B, D) to (B, N, D)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(embedding).chunk(6, dim=-1)
        x = x + gate1[:, None] * self.attn(_modulated(self.norm1(x), shift1, scale1))
        return x + gate2[:, None] * self.mlp(_modulated(self.norm2(x), shift2, scale2))


class FinalLayer(nn.Module):
    """From a token to the pixels of its patch."""

    def __init__(self, dim: int, patch_size: int, out_chans: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, NORM_EPS, elementwise_affine=False)
        self.linear = nn.Linear(dim, patch_size * patch_size * out_chans)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 2 * dim))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x (B, N, D), embedding (B, D) to (B, N, patch x patch x out_chans)."""
        shift, scale = self.modulation(embedding).chunk(2, dim=-1)
        return self.linear(_modulated(self.norm(x), shift, scale))


class DiTDenoiser(nn.Module):
    """Noisy images (and conditions), their time steps and, where it has classes, class numbers, to a prediction.

    Args:
        in_chans, out_chans: channels of the input, condition included, and of the prediction.
        patch_size: side of a token's square; it divides the sides of images.
        num_classes: None for none. Their table has one row more, for "no class" (classifier-free guidance).
        recompute: whether the backward pass computes each block again instead of finding it saved.

    Gates and the last layer start at 0 (adaLN-zero): every block starts as the identity.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        *,
        patch_size: int,
        embed_dim: int,
        depth: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        num_classes: int | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.patch_size, self.out_chans, self.recompute = patch_size, out_chans, recompute
        self.patch_embed = nn.Conv2d(in_chans, embed_dim, patch_size, stride=patch_size)
        self.time_mlp = nn.Sequential(
            nn.Linear(FREQUENCIES, embed_dim), nn.SiLU(), nn.Linear(embed_dim, embed_dim)
        )
        self.class_table = None if num_classes is None else nn.Embedding(num_classes + 1, embed_dim)
        self.blocks = nn.ModuleList(DiTBlock(embed_dim, num_heads, mlp_ratio) for _ in range(depth))
        self.final = FinalLayer(embed_dim, patch_size, out_chans)
        self._initialise()

    def _initialise(self) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        weight = self.patch_embed.weight.data
        nn.init.xavier_uniform_(weight.view(len(weight), -1))
        assert self.patch_embed.bias is not None
        nn.init.zeros_(self.patch_embed.bias)
        embeddings: list[Any] = [self.time_mlp[0], self.time_mlp[2]]
        if self.class_table is not None:
            embeddings.append(self.class_table)
        for embedding in embeddings:
            nn.init.normal_(embedding.weight, std=0.02)
        modulated = [layer for layer in self.modules() if isinstance(layer, (DiTBlock, FinalLayer))]
        zeroed: list[Any] = [*(layer.modulation[1] for layer in modulated), self.final.linear]
        for linear in zeroed:
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, timesteps: Tensor, classes: Tensor | None = None) -> Tensor:
        """x (B, in_chans, H, W), timesteps and classes (B,), whole numbers, to (B, out_chans, H, W)."""
        patches = self.patch_embed(x)
        batch, dim, rows, columns = patches.shape
        positions = position_embedding(rows, columns, dim, x.device).to(patches.dtype)
        tokens = patches.flatten(2).transpose(1, 2) + positions
        embedding = self.time_mlp(timestep_embedding(timesteps, FREQUENCIES).to(x.dtype))
        if self.class_table is not None:
            embedding = embedding + self.class_table(classes)
        for block in self.blocks:
            tokens = recomputed(block, tokens, embedding, when=self.recompute)
        side = self.patch_size
        pixels = self.final(tokens, embedding).reshape(batch, rows, columns, side, side, self.out_chans)
        return pixels.permute(0, 5, 1, 3, 2, 4).reshape(batch, self.out_chans, rows * side, columns * side)


def build_dit_denoiser(config: ExperimentConfig) -> BuiltModel:
    """The transformer of the model section, with its image, its time step and, where it has classes, a class."""
    model = config.model_section(DiTDenoiserModelConfig)
    module = DiTDenoiser(
        model.network_input_channels,
        model.output_channels,
        patch_size=model.patch_size,
        embed_dim=model.embed_dim,
        depth=model.depth,
        num_heads=model.num_heads,
        mlp_ratio=model.mlp_ratio,
        num_classes=model.num_classes,
        recompute=config.training.network_checkpointing != "none",
    )
    inputs = denoiser_inputs(config, model)
    if model.num_classes is not None:
        inputs = {purpose: (*specs, InputSpec((), "int64")) for purpose, specs in inputs.items()}
    return BuiltModel("dit_denoiser", module, inputs)
