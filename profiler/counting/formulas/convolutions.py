"""MACs of convolutions. The handles' signature and unit are those of the folder's."""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import Work


def convolution_macs(
    x_shape: Sequence[int], weight_numel: int, out_shape: Sequence[int], transposed: bool
) -> int:
    """N prod(output spatial) numel(W); for a transposed convolution N prod(input spatial) numel(W).

    Grouping needs no factor: a grouped weight (C_out, C_in / groups, ...) already has 1 / groups of the
        elements.
    """
    spatial = x_shape[2:] if transposed else out_shape[2:]
    return x_shape[0] * prod(spatial) * weight_numel


def convolution(
    out: Any,
    x: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Any dimension, grouped or not, transposed or not."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed)


def plain_convolution(out: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Operators of one backend that cannot transpose, and deformable convolutions."""
    return convolution_macs(x.shape, weight.numel(), _first(out).shape, transposed=False)


def plain_transposed_convolution(out: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Operators of one backend that only transpose."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed=True)


def unbatched_convolution(out: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """slow_conv* take (C, spatial) and (N, C, spatial): outputs per channel times numel(W)."""
    return out.numel() // out.shape[1 - weight.dim()] * weight.numel()


def conv_tbc(out_tbo: Tensor, x_tbc: Tensor, weight_kco: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Time-batch-channel convolution: T_out B numel(W)."""
    return out_tbo.shape[0] * out_tbo.shape[1] * weight_kco.numel()


def packed_convolution(out: Any, x: Tensor, packed: Any, *args: Any, **kwargs: Any) -> Work:
    """Quantized convolutions: the packed parameters unpack to the weight."""
    return convolution_macs(x.shape, packed.unpack()[0].numel(), out.shape, transposed=False)


def packed_transposed_convolution(out: Any, x: Tensor, packed: Any, *args: Any, **kwargs: Any) -> Work:
    """Quantized transposed convolutions."""
    return convolution_macs(x.shape, packed.unpack()[0].numel(), out.shape, transposed=True)


def convolution_backward(
    out: Any,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    output_mask: Any,
) -> Work:
    """The forward's MACs once for the input's and once for the weight's gradient, grouped or not."""
    return convolution_macs(x.shape, weight.numel(), grad.shape, transposed) * sum(map(int, output_mask[:2]))


def deform_conv2d_backward(
    out: Any, grad: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """Weight gradient and column gradient, each of the forward's size."""
    return 2 * convolution_macs(x.shape, weight.numel(), grad.shape, transposed=False)


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, (tuple, list)) else out
