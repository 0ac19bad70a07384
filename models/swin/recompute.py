"""Layers that compute a cheap input again in the backward pass instead of saving it.

The light kind of gradient checkpointing: no product is computed twice. (Chen et al. 2016, "Training deep nets
with sublinear memory cost", section 4.1: drop the results of low cost operations.)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

aten = torch.ops.aten


def _linear_gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of the input, the weight and the bias of a linear layer; gradient (..., out), x (..., in)."""
    rows = gradient.flatten(0, -2)
    d_weight = rows.t() @ x.flatten(0, -2)
    return gradient @ weight, d_weight, rows.sum(0) if has_bias else None


def _as(tensor: Tensor | None, like: Tensor | None) -> Tensor | None:
    return None if tensor is None or like is None else tensor.to(like.dtype)


class NormLinear(torch.autograd.Function):
    """linear(layer_norm(x)), saving x (..., C) and its statistics; the product is computed in `dtype`."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        eps: float,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.eps, ctx.dtype = eps, dtype
        ctx.save_for_backward(x, norm_weight, norm_bias, weight, bias)
        scale, shift = norm_weight.to(x.dtype), norm_bias.to(x.dtype)
        normed = F.layer_norm(x, x.shape[-1:], scale, shift, eps)
        return F.linear(normed.to(dtype), weight.to(dtype), _as(bias, normed.to(dtype)))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, norm_weight, norm_bias, weight, bias = ctx.saved_tensors
        dtype = ctx.dtype
        scale, shift = norm_weight.to(x.dtype), norm_bias.to(x.dtype)
        normed, *statistics = aten.native_layer_norm(x, x.shape[-1:], scale, shift, ctx.eps)
        d_normed, d_weight, d_bias = _linear_gradients(
            gradient, normed.to(dtype), weight.to(dtype), bias is not None
        )
        d_x, d_scale, d_shift = aten.native_layer_norm_backward(
            d_normed.to(x.dtype), x, x.shape[-1:], *statistics, scale, shift, [True, True, True]
        )
        of_norm = (_as(d_scale, norm_weight), _as(d_shift, norm_bias))
        return d_x, *of_norm, None, _as(d_weight, weight), _as(d_bias, bias), None


class GeluLinear(torch.autograd.Function):
    """linear(gelu(x)), saving x (..., C); the product is computed in x's dtype."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        return F.linear(F.gelu(x), weight.to(x.dtype), bias.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        d_gelu, d_weight, d_bias = _linear_gradients(gradient, F.gelu(x), weight.to(x.dtype), True)
        return aten.gelu_backward(d_gelu, x), _as(d_weight, weight), _as(d_bias, bias)
