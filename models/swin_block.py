"""The Swin Transformer block as SwinIR uses it (Liang et al. 2021, fig. 2b), on (B, H, W, C) features."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.windows import merge_windows, partition_windows, relative_position_index

# Kept by official checkpoints, per block, though they follow from the sizes: read past, never written.
COMPUTED_TENSORS = ("attn_mask", "attn.relative_position_index")


def drop_path(x: Tensor, probability: float, training: bool) -> Tensor:
    """Stochastic depth (Huang et al. 2016): drops the whole residual branch of some samples, x (B, ...)."""
    if probability == 0.0 or not training:
        return x
    keep = 1.0 - probability
    kept_samples = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
    return x * kept_samples.div_(keep)


class Mlp(nn.Module):
    """Linear, exact GELU, linear, over the last axis."""

    def __init__(self, channels: int, hidden_channels: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden_channels)
        self.fc2 = nn.Linear(hidden_channels, channels)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.gelu(self.fc1(x)), self.dropout, self.training)
        return F.dropout(self.fc2(x), self.dropout, self.training)


class WindowAttention(nn.Module):
    """Multi-head self-attention inside windows with a learned relative position bias.

    Liu et al. 2021, eq. 4: softmax(q k^T / sqrt(d) + bias) v. Keys of the state dict are the official ones.
    """

    def __init__(
        self,
        channels: int,
        window_size: int,
        num_heads: int,
        *,
        qkv_bias: bool,
        attention_dropout: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (channels // num_heads) ** -0.5
        self.attention_dropout = attention_dropout
        self.dropout = dropout
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window_size - 1) ** 2, num_heads))
        self.register_buffer(
            "relative_position_index", relative_position_index(window_size), persistent=False
        )
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def relative_position_bias(self) -> Tensor:
        """(heads, N, N) with N = window_size^2 tokens."""
        tokens = self.relative_position_index.shape[0]
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        return bias.view(tokens, tokens, self.num_heads).permute(2, 0, 1)

    def forward(self, windows: Tensor, mask: Tensor | None) -> Tensor:
        """windows (B * windows, N, C); mask (windows, N, N) of a shifted block, else None."""
        count, tokens, channels = windows.shape
        qkv = self.qkv(windows).view(count, tokens, 3, self.num_heads, channels // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        logits = (query * self.scale) @ key.transpose(-2, -1)
        logits = logits + self.relative_position_bias()
        if mask is not None:
            per_image = logits.view(-1, mask.shape[0], self.num_heads, tokens, tokens)
            logits = (per_image + mask[:, None]).view(count, self.num_heads, tokens, tokens)
        weights = F.dropout(logits.softmax(dim=-1), self.attention_dropout, self.training)
        attended = (weights @ value).transpose(1, 2).reshape(count, tokens, channels)
        return F.dropout(self.proj(attended), self.dropout, self.training)


class SwinBlock(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x)), on (B, H, W, C) with H and W multiples of the window.

    `shift` is 0 or half a window; a shifted block takes the mask of the resolution.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        window_size: int,
        shift: int,
        *,
        mlp_ratio: float,
        qkv_bias: bool,
        dropout: float,
        attention_dropout: float,
        drop_path_rate: float,
    ) -> None:
        super().__init__()
        self.window_size = window_size
        self.shift = shift
        self.drop_path_rate = drop_path_rate
        self.norm1 = nn.LayerNorm(channels)
        self.attn = WindowAttention(
            channels,
            window_size,
            num_heads,
            qkv_bias=qkv_bias,
            attention_dropout=attention_dropout,
            dropout=dropout,
        )
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = Mlp(channels, int(channels * mlp_ratio), dropout)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attention in (shifted) windows, (B, H, W, C) -> (B, H, W, C)."""
        _, height, width, _ = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        windows = self.attn(partition_windows(x, self.window_size), mask if self.shift else None)
        x = merge_windows(windows, self.window_size, height, width)
        if self.shift:
            x = torch.roll(x, (self.shift, self.shift), dims=(1, 2))
        return x

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + drop_path(self.attend(self.norm1(x), mask), self.drop_path_rate, self.training)
        return x + drop_path(self.mlp(self.norm2(x)), self.drop_path_rate, self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # A checkpoint made at one image size loads at every other: its masks are not this network's.
        for name in COMPUTED_TENSORS:
            state_dict.pop(prefix + name, None)
        super()._load_from_state_dict(state_dict, prefix, *args)
