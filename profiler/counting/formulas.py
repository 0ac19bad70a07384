"""MACs of single operators, from shapes alone.

Unit: one MAC is one multiply-add of a matrix product, convolution or attention product (FLOPs = 2 x MACs).
Bias, activation, normalisation, softmax and interpolation are never counted here; masks are not discounted;
the zeros that pad a convolution are counted. The handles count multiply-adds of whatever numbers the tensors
hold; the engine takes those of complex numbers four times, because a MAC is a real multiply-add.

Every handle has the signature ``handle(out, *args, **kwargs)``: the operator's result, then its arguments as
the dispatcher passed them. It returns the MACs as an int, or a dict from kind ("linear", "attention",
"recomputed", ...) to MACs where one operator does several kinds of work, or None where the shapes do not tell
(the call is then listed as uncounted). Handles read shapes and never values, so that they work on meta
tensors; the packed variable-length attentions are the exception, which need the sequence lengths, and raise
NeedsValuesError for those on meta.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from torch import Tensor

Work = int | dict[str, int] | None


class NeedsValuesError(RuntimeError):
    """A formula has to read values of its arguments, and meta tensors have none: the call is to run for real."""


def numel_of_matrices(tensors: Iterable[Tensor | None]) -> int:
    """Elements of the 2-D tensors of a flat weight list (biases are 1-D)."""
    return sum(t.numel() for t in tensors if t is not None and t.dim() == 2)


# Matrix products


def mm(out: Any, a_mk: Tensor, b_kn: Tensor, *args: Any, **kwargs: Any) -> Work:
    """m n k; also n k products of a batch: (..., m, k) @ (..., k, n)."""
    return a_mk.numel() * b_kn.shape[-1]


def addmm(out: Any, bias: Any, a_mk: Tensor, b_kn: Tensor, *args: Any, **kwargs: Any) -> Work:
    """m n k, or b m n k for baddbmm and addbmm; the added matrix is not counted."""
    return a_mk.numel() * b_kn.shape[-1]


def mv(out: Any, a_mn: Tensor, x_n: Tensor, *args: Any, **kwargs: Any) -> Work:
    """numel(A)."""
    return a_mn.numel()


def addmv(out: Any, bias: Any, a_mn: Tensor, x_n: Tensor, *args: Any, **kwargs: Any) -> Work:
    """numel(A)."""
    return a_mn.numel()


def dot(out: Any, x_n: Tensor, y_n: Tensor, *args: Any, **kwargs: Any) -> Work:
    """n."""
    return x_n.numel()


def foreach_mm(out: Any, a_list: list[Tensor], b_list: list[Tensor], *args: Any, **kwargs: Any) -> Work:
    """The sum of m n k over the pairs of the lists."""
    return sum(a.numel() * b.shape[-1] for a, b in zip(a_list, b_list, strict=True))


def grouped_mm(out: Any, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Products of groups cut out of one dimension (mixture of experts); the offsets themselves do not matter.

    (rows, k) x (g, k, n): every row meets one group; (g, m, k) x (g, k, n): a batch; (m, k) x (k, n) with k
    cut: one product in g pieces; (g, m, k) x (k, cols) with cols cut: every column meets one group.
    """
    if a.dim() == 3 and b.dim() == 2:
        return a.shape[-2] * a.shape[-1] * b.shape[-1]
    return a.numel() * b.shape[-1]


def linear(out: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Work:
    """numel(x) out_features. The weight is not read: packed and quantized ones hide their shape."""
    return x.numel() * out.shape[-1]


def third_is_input(out: Tensor, exponent: Any, mantissa: Any, x: Tensor, *args: Any, **kwargs: Any) -> Work:
    """A linear layer whose input comes third, after the bits of its weights."""
    return x.numel() * out.shape[-1]


def linear_cross_entropy(out: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """torch.nn.functional.linear_cross_entropy in chunks: N D C for the logits, and as much for each gradient.

    With a scalar result the forward computes the gradients, too: the flags say which. Without reduction it has none.
    """
    flags = args[-3:-1] if len(args) == 13 else ()
    return x.numel() * weight.shape[0] * (1 + sum(map(int, flags)))


def linear_backward_weights(
    out: Any, grad_output: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """One product of the size of the forward's."""
    return x.numel() * weight.shape[0]


def linear_backward_input(
    out: Any, input_size: Any, grad_output: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """One product of the size of the forward's."""
    return grad_output.numel() * weight.shape[-1]


def linear_backward(
    out: Any, x: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Any, *args: Any, **kwargs: Any
) -> Work:
    """One product of the size of the forward's for each of the input's and the weight's gradient."""
    return x.numel() * weight.shape[0] * (int(output_mask[0]) + int(output_mask[1]))


def matmul_backward(
    out: Any, grad: Tensor, a: Tensor, b: Tensor, mask: Any, *args: Any, **kwargs: Any
) -> Work:
    """One product of the size of the forward's for each gradient asked for."""
    return grad.numel() * a.shape[-1] * (int(mask[0]) + int(mask[1]))


# Convolutions


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
    """Operators of one backend that cannot transpose."""
    return convolution_macs(x.shape, weight.numel(), _first(out).shape, transposed=False)


def plain_transposed_convolution(out: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Operators of one backend that only transpose."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed=True)


def unbatched_convolution(out: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """slow_conv* take (C, spatial) and (N, C, spatial): outputs per channel times numel(W)."""
    channels = out.shape[weight.dim() * -1 + 1]
    return out.numel() // channels * weight.numel()


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


def deform_conv2d(out: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """N prod(output spatial) numel(W); sampling the input is interpolation and not counted."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed=False)


def deform_conv2d_backward(
    out: Any, grad: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """Weight gradient and column gradient, each of the forward's size."""
    return 2 * convolution_macs(x.shape, weight.numel(), grad.shape, transposed=False)


# Recurrent layers


def rnn_macs(step_count: int, matrix_numel: int) -> int:
    """T B x the elements of the 2-D weights: input, hidden and projection matrices meet every token once."""
    return step_count * matrix_numel


def rnn_flat_weights(out: Any, x: Tensor, weights: Any, *args: Any, **kwargs: Any) -> Work:
    """cuDNN and MIOpen: (T, B, C) or packed (tokens, C) input and every layer's weights in one list."""
    return rnn_macs(x.numel() // x.shape[-1], numel_of_matrices(weights))


def rnn_flat_weights_backward(
    out: Any, x: Tensor, weights: Any, weight_stride0: Any, *args: Any, **kwargs: Any
) -> Work:
    """2 x forward, less what output_mask (input, hx, cx, weights) leaves out.

    Without the input's gradient the first layer's input matrices are met once: weights[0], and in a
    bidirectional layer that of the other direction, weight_stride0 places on.
    """
    bidirectional, output_mask = args[-5], args[-1]
    steps = x.numel() // x.shape[-1]
    macs = rnn_macs(steps, numel_of_matrices(weights)) * (1 + int(output_mask[3]))
    if not output_mask[0]:
        first = weights[: weight_stride0 * (2 if bidirectional else 1) : weight_stride0]
        macs -= rnn_macs(steps, numel_of_matrices(first))
    return macs


def lstm_mps(out: Any, x: Tensor, hx: Tensor, weights: Any, *args: Any, **kwargs: Any) -> Work:
    """The forward on Apple GPUs; the weights follow the states."""
    return rnn_macs(x.numel() // x.shape[-1], numel_of_matrices(weights))


def mkldnn_rnn_layer(
    out: Any, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """One layer in one direction: T B (numel(W_ih) + numel(W_hh))."""
    return rnn_macs(x.numel() // x.shape[-1], weight_ih.numel() + weight_hh.numel())


def mkldnn_rnn_layer_backward(
    out: Any, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """2 x forward: the operator has no mask and always computes the input's gradient too."""
    return 2 * rnn_macs(x.numel() // x.shape[-1], weight_ih.numel() + weight_hh.numel())


# Others


def affine_grid(out_nhwc: Tensor, theta: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Every point of the grid times the matrix: N H W x 2 x 3, or N D H W x 3 x 4."""
    return out_nhwc.numel() * (out_nhwc.shape[-1] + 1)


def affine_grid_backward(out: Any, grad_nhwc: Tensor, *args: Any, **kwargs: Any) -> Work:
    """The matrix's gradient, a product of the size of the forward's; the grid has none."""
    return grad_nhwc.numel() * (grad_nhwc.shape[-1] + 1)


def trilinear(
    out: Any,
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: Any = 1,
) -> Work:
    """torch.nn.functional.bilinear and its gradients: two batched products, (i1 i2) and then with i3.

    Bilinear of (N, a), (N, b) to c features: N c a b for the first, N c b for the second.
    """
    axes = range(i1.dim() + len(expand1))
    sizes = [_broadcast_sizes(t, expand, axes) for t, expand in ((i1, expand1), (i2, expand2), (i3, expand3))]
    first = [max(a, b) for a, b in zip(sizes[0], sizes[1], strict=True)]
    summed_first = {axis for axis in sumdim if axis in expand3}
    buffer = [1 if axis in summed_first else first[axis] for axis in axes]
    return prod(first) + prod(max(a, b) for a, b in zip(buffer, sizes[2], strict=True))


def _broadcast_sizes(tensor: Tensor, expand: Sequence[int], axes: range) -> list[int]:
    remaining = iter(tensor.shape)
    return [1 if axis in expand else next(remaining) for axis in axes]


def cdist(
    out: Any, x1: Tensor, x2: Tensor, p: Any = 2.0, compute_mode: Any = None, *args: Any, **kwargs: Any
) -> Work:
    """B P R d where torch computes Euclidean distances by a matrix product, 0 where it takes differences.

    The rule is torch's own: p = 2 and (mode 1, or the default mode with more than 25 rows on a side). The two
    columns it appends to add the squared norms are additions and not counted.
    """
    rows = max(x1.shape[-2], x2.shape[-2])
    by_product = p == 2 and (compute_mode == 1 or (compute_mode in (None, 0) and rows > 25))
    return out.numel() * x1.shape[-1] if by_product else 0


def euclidean_dist(out: Tensor, x1: Tensor, x2: Tensor) -> Work:
    """B P R d: the distance by a matrix product."""
    return out.numel() * x1.shape[-1]


def cdist_backward(out: Any, grad: Tensor, x1: Tensor, x2: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Differences weighted element by element: no matrix product."""
    return 0


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, (tuple, list)) else out
