"""The layers of a Swin block: window attention and the two-layer perceptron, each with the norm before it."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from swinmr_profiling.models.stand_in import stands_for
from swinmr_profiling.models.swin.attention import class_attention, pad_heads, padded_head_dim
from swinmr_profiling.models.swin.linear_gradients import GeluLinear, NormLinear
from swinmr_profiling.models.swin.windows import cached_class_masks, cached_relative_position_index

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class BlockOptions(NamedTuple):
    """attention: one of FORCED_WAYS, or "auto" for the policy's choice; recompute: light checkpointing."""

    attention: str = "auto"
    recompute: bool = False


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody looks on when the module is called: hooks of its own, or torch's for all modules.

    A counter that credits work to modules sees a layer only if the layer is called.
    """
    return any(getattr(module, hooks) or getattr(module_hooks, f"_global{hooks}") for hooks in HOOKS)


def is_plain(module: nn.Module, kind: type) -> bool:
    """Exactly a torch layer, with nothing on it that would notice if its forward were not called."""
    return type(module) is kind and type(module.weight) is nn.Parameter and not has_hooks(module)


def product_dtype(device_type: str, weight: Tensor) -> torch.dtype:
    """The dtype in which a linear layer with this weight computes."""
    device_type = stands_for(device_type)
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return weight.dtype


def concatenated(pieces: list[Tensor]) -> Tensor:
    """torch.cat, without the copy of a single piece."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def split(x: Tensor, sizes: tuple[int, ...] | None) -> list[Tensor]:
    """x in pieces along its first axis, without the empty ones."""
    if sizes is None or len(sizes) == 1:
        return [x]
    return [piece for piece in x.split(list(sizes)) if len(piece)]


def normalise(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """LayerNorm in x's own precision, also where the network's weights are in half precision."""
    if norm.weight.dtype == x.dtype:
        return norm(x)
    return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)


def normalise_and_project(
    norm: nn.LayerNorm,
    linear: nn.Linear,
    x: Tensor,
    recompute: bool,
    padding: tuple[int, int] | None = None,
    sizes: tuple[int, ...] | None = None,
) -> list[Tensor]:
    """linear(norm(x)) in pieces of these sizes (windows; None: one piece, empty ones are left out).

    With padding (head dim, padded head dim) every head is followed by zeros. recompute: the normalised
    features are not saved for the backward pass. x is split before the projection, because the gradient of a
    split is a copy, and the projection makes three times as many channels.
    """
    dtype = product_dtype(x.device.type, linear.weight)
    weight: Tensor = linear.weight
    bias: Tensor | None = linear.bias
    if padding:
        weight = pad_heads(weight, *padding, dim=0)
        bias = None if bias is None else pad_heads(bias, *padding, dim=0)
    if recompute and torch.is_grad_enabled() and is_plain(norm, nn.LayerNorm) and is_plain(linear, nn.Linear):
        arguments = (norm.weight, norm.bias, norm.eps, weight, bias, dtype)
        return [NormLinear.apply(piece, *arguments) for piece in split(x, sizes)]
    pieces = split(normalise(norm, x).to(dtype), sizes)
    if is_plain(linear, nn.Linear):
        return [F.linear(piece, weight, bias) for piece in pieces]
    return split(linear(concatenated(pieces)), sizes)


class Mlp(nn.Module):
    """Linear, exact GELU, linear, over the last axis of x, which is normalised first."""

    def __init__(self, channels: int, hidden_channels: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden_channels)
        self.fc2 = nn.Linear(hidden_channels, channels)
        self.dropout = dropout

    def forward(self, x: Tensor, norm: nn.LayerNorm, recompute: bool) -> Tensor:
        [hidden] = normalise_and_project(norm, self.fc1, x, recompute)
        dropped = self.dropout if self.training else 0.0
        if recompute and torch.is_grad_enabled() and not dropped and is_plain(self.fc2, nn.Linear):
            return GeluLinear.apply(hidden, self.fc2.weight, self.fc2.bias)
        return F.dropout(self.fc2(F.dropout(F.gelu(hidden), dropped)), dropped)


class WindowAttention(nn.Module):
    """Multi-head self-attention inside windows with a learned relative position bias.

    Keys of the state dict are the official ones.
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
        self.window_size = window_size
        self.head_dim = channels // num_heads
        self.scale = self.head_dim**-0.5
        self.attention_dropout = attention_dropout
        self.dropout = dropout
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window_size - 1) ** 2, num_heads))
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def bias(self, shift: int) -> Tensor:
        """Relative position bias and, after a shift, the mask: (classes, heads, N, N), 1 class without."""
        tokens, device = self.window_size**2, self.relative_position_bias_table.device
        index = cached_relative_position_index(self.window_size, device)
        bias = self.relative_position_bias_table[index].view(tokens, tokens, self.num_heads).permute(2, 0, 1)
        if not shift:
            return bias.contiguous()[None]
        return bias.contiguous()[None] + cached_class_masks(self.window_size, shift, device)[:, None]

    def forward(
        self, x: Tensor, norm: nn.LayerNorm, shift: int, class_sizes: tuple[int, ...], options: BlockOptions
    ) -> Tensor:
        """x (windows, N, C), windows sorted by mask class; norm comes first."""
        width = self.head_dim
        if options.attention == "padded":
            width = padded_head_dim(width, product_dtype(x.device.type, self.qkv.weight))
        # Hooks and replaced layers are called, with whole tensors; there, what is padded is the results.
        plain = is_plain(self.qkv, nn.Linear) and is_plain(self.proj, nn.Linear)
        padding = (self.head_dim, width) if plain and width > self.head_dim else None
        pieces = normalise_and_project(norm, self.qkv, x, options.recompute, padding, class_sizes)
        biases = [bias for bias, size in zip(self.bias(shift), class_sizes, strict=True) if size]
        attended = []
        for qkv, bias in zip(pieces, biases, strict=True):
            qkv = qkv.unflatten(-1, (3, self.num_heads, -1))
            if qkv.shape[-1] < width:
                qkv = F.pad(qkv, (0, width - self.head_dim))
            dropout = self.attention_dropout if self.training else 0.0
            how = dict(scale=self.scale, dropout=dropout, way=options.attention, recompute=options.recompute)
            attended.append(class_attention(qkv, bias, **how))
        if plain:
            # Before the classes are put together: the kernel and the projection keep the same tensor then.
            weight = pad_heads(self.proj.weight, *padding, dim=1) if padding else self.proj.weight
            out = concatenated([F.linear(piece, weight, self.proj.bias) for piece in attended])
        else:
            whole = concatenated(attended).unflatten(-1, (self.num_heads, width))
            out = self.proj(whole[..., : self.head_dim].flatten(-2))
        return F.dropout(out, self.dropout, self.training)
