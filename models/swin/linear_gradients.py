"""Linear layers whose gradients are written out: added up over runs of rows, or with a cheap input computed again.

The latter is the light kind of gradient checkpointing: no product is computed twice. (Chen et al. 2016, "Training deep
nets with sublinear memory cost", section 4.1: drop the results of low cost operations.)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

aten = torch.ops.aten


class LinearGradient:
    """The gradients of a linear layer, added up over runs."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        # Transposed, because the product is faster that way round.
        self.d_weight_t = weight.new_zeros(weight.shape[::-1])
        self.d_bias = weight.new_zeros(weight.shape[0])

    def add(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of the input x (rows, in), from that of the output."""
        self.d_weight_t.addmm_(x.t(), gradient)
        self.d_bias += gradient.sum(0)
        return gradient @ self.weight

    def parameters(self) -> tuple[Tensor, Tensor]:
        """Gradients of the weight and the bias."""
        return self.d_weight_t.t(), self.d_bias


class NormedLinearGradient(LinearGradient):
    """The same of a linear layer after a LayerNorm, n = z g + b with z the standardised input.

    From P = sum over rows of z dY^T follow dW = g P + b dbias, dg = sum over outputs of W P and
    db = W^T dbias: the norm's parameters cost no pass over the features.
    """

    def __init__(self, norm_weight: Tensor, weight: Tensor) -> None:
        super().__init__(weight)
        self.norm_weight = norm_weight

    def add_normed(self, gradient: Tensor, x: Tensor, eps: float) -> Tensor:
        """The gradient of x (rows, in), which is normalised first."""
        shape = x.shape[-1:]
        standardised, *statistics = aten.native_layer_norm(x, shape, None, None, eps)
        d_normed = self.add(gradient, standardised)
        arguments = (shape, *statistics, self.norm_weight, None, [True, False, False])
        return aten.native_layer_norm_backward(d_normed, x, *arguments)[0]

    def all_parameters(self, norm_bias: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Gradients of the norm's weight and bias, and of the linear layer's."""
        of_standardised = self.d_weight_t.t()
        d_weight = of_standardised * self.norm_weight + torch.outer(self.d_bias, norm_bias)
        of_norm = (self.weight * of_standardised).sum(0), self.d_bias @ self.weight
        return of_norm, (d_weight, self.d_bias)


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
