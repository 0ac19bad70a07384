"""Gradients of linear layers, added up over runs of rows."""

from __future__ import annotations

import torch
from torch import Tensor

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
