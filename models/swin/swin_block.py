"""The Swin Transformer block as SwinIR uses it (Liang et al. 2021, fig. 2b), on features in window order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.models.swin.attention import attention_policy
from swinmr_profiling.models.swin.block_layers import (
    BlockOptions,
    Mlp,
    WindowAttention,
    has_hooks,
    is_plain,
    product_dtype,
)
from swinmr_profiling.models.swin.blocked import BlockedTraining, BlockWeights, Plan, blocked_inference
from swinmr_profiling.models.swin.windows import Geometry, index_pair, reorder

# Kept by official checkpoints, per block, though they follow from the sizes: read past, never written.
COMPUTED_TENSORS = ("attn_mask", "attn.relative_position_index")


def kept_samples(x: Tensor, batch: int, probability: float, training: bool) -> Tensor | None:
    """Stochastic depth (Huang et al. 2016): a factor (batch,) for a residual branch, 0 or 1 / (1 - p).

    None where nothing is dropped. One draw per sample, as the reference draws.
    """
    if probability == 0.0 or not training:
        return None
    keep = 1.0 - probability
    return x.new_empty(batch).bernoulli_(keep).div_(keep)


class SwinBlock(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x)), on rows (B * H * W, C).

    `shift` is 0 or half a window. `order` is how the block's result is ordered (models/swin/windows.py).
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
        self.shift = shift
        self.order = "shifted" if shift else "regular"
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

    def forward(
        self, rows: Tensor, geometry: Geometry, order: str, options: BlockOptions, out: Tensor | None = None
    ) -> Tensor:
        """rows in `order` -> rows in self.order; out is memory that the result may take without gradients."""
        way = self.attention_way(rows, options)
        class_sizes = geometry.class_sizes() if self.shift else (geometry.batch * geometry.windows,)
        if way == "blocked":
            return self._blocked(rows, geometry, order, class_sizes, out)
        x = reorder(rows, geometry, order, self.order).view(-1, geometry.tokens, rows.shape[-1])
        options = BlockOptions(way, options.recompute)
        x = self._add(x, self.attn(x, self.norm1, self.shift, class_sizes, options), geometry.batch)
        x = self._add(x, self.mlp(x, self.norm2, options.recompute), geometry.batch)
        return x.flatten(0, 1)

    def _add(self, x: Tensor, branch: Tensor, batch: int) -> Tensor:
        kept = kept_samples(x, batch, self.drop_path_rate, self.training)
        if kept is not None:
            branch = branch * kept.repeat(len(x) // batch)[:, None, None]
        return x + branch

    def trains(self, rows: Tensor) -> bool:
        """Whether a forward of these rows is remembered for a backward pass."""
        return torch.is_grad_enabled() and (
            rows.requires_grad or any(parameter.requires_grad for parameter in self.parameters())
        )

    def attention_way(self, rows: Tensor, options: BlockOptions) -> str:
        """What is forced, or the policy's choice for this block."""
        if options.attention != "auto":
            return options.attention
        trains = self.trains(rows)
        traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        table, qkv = self.attn.relative_position_bias_table, self.attn.qkv
        return attention_policy(
            rows.device.type,
            trains=trains,
            traced=traced,
            whole=not traced and self.can_be_blocked(rows.dtype, trains),
            bias_alone=trains
            and table.requires_grad
            and not (rows.requires_grad or any(parameter.requires_grad for parameter in qkv.parameters())),
        )

    def can_be_blocked(self, dtype: torch.dtype, trains: bool) -> bool:
        """Whether the block may be computed in runs of windows, its layers not called; dtype: of the stream."""
        norms, linears = (self.norm1, self.norm2), (self.attn.qkv, self.attn.proj, self.mlp.fc1, self.mlp.fc2)
        plain = all(is_plain(m, nn.LayerNorm) for m in norms) and all(is_plain(m, nn.Linear) for m in linears)
        drops = self.training and (self.attn.attention_dropout or self.attn.dropout or self.mlp.dropout)
        if not plain or drops or has_hooks(self.attn) or has_hooks(self.mlp):
            return False
        if not trains:
            return not (self.training and self.drop_path_rate)
        one_dtype = all(parameter.dtype == dtype for parameter in self.parameters())
        return one_dtype and not torch.is_autocast_enabled("cpu")

    def _blocked(
        self,
        rows: Tensor,
        geometry: Geometry,
        order: str,
        class_sizes: tuple[int, ...],
        out: Tensor | None,
    ) -> Tensor:
        """The block in runs of windows: the same values, see models/swin/blocked.py."""
        attn, mlp = self.attn, self.mlp
        plan = Plan(attn.num_heads, geometry.tokens, attn.scale, self.norm1.eps, class_sizes)
        index = inverse = None
        if order != self.order:
            index, inverse = index_pair(geometry, order, self.order, rows.device)
        weights = BlockWeights(
            *(self.norm1.weight, self.norm1.bias, attn.qkv.weight, attn.qkv.bias),
            *(attn.proj.weight, attn.proj.bias, self.norm2.weight, self.norm2.bias),
            *(mlp.fc1.weight, mlp.fc1.bias, mlp.fc2.weight, mlp.fc2.bias),
        )
        bias = attn.bias(self.shift)
        if not self.trains(rows):
            dtype = product_dtype("cpu", attn.qkv.weight)
            weights = weights.cast(rows.dtype, dtype)
            # The products are in one dtype already; autocast would look at every one of them again.
            with torch.autocast("cpu", enabled=False):
                out = torch.empty_like(rows) if out is None else out
                return blocked_inference(rows, index, bias, weights, plan, out)
        windows = len(rows) // (geometry.batch * geometry.tokens)
        keeps = [kept_samples(rows, geometry.batch, self.drop_path_rate, self.training) for _ in range(2)]
        keeps = [None if keep is None else keep.repeat(windows) for keep in keeps]
        return BlockedTraining.apply(rows, index, inverse, bias, *keeps, plan, *weights)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # A checkpoint made at one image size loads at every other: its masks are not this network's.
        for name in COMPUTED_TENSORS:
            state_dict.pop(prefix + name, None)
        super()._load_from_state_dict(state_dict, prefix, *args)
