"""MACs of matrix products and linear layers. The handles' signature and unit are those of the folder's."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import Work


def numel_of_matrices(tensors: Iterable[Tensor | None]) -> int:
    """Elements of the 2-D tensors of a flat weight list (biases are 1-D)."""
    return sum(t.numel() for t in tensors if t is not None and t.dim() == 2)


def mm(out: Any, a_mk: Tensor, b_kn: Tensor, *args: Any, **kwargs: Any) -> Work:
    """m n k; also n k products of a batch: (..., m, k) @ (..., k, n)."""
    return a_mk.numel() * b_kn.shape[-1]


def addmm(out: Any, bias: Any, a_mk: Tensor, b_kn: Tensor, *args: Any, **kwargs: Any) -> Work:
    """m n k, or b m n k for baddbmm and addbmm; the added matrix is not counted."""
    return a_mk.numel() * b_kn.shape[-1]


def mv(out: Any, a_mn: Tensor, x_n: Tensor, *args: Any, **kwargs: Any) -> Work:
    """numel(A); of two vectors n."""
    return a_mn.numel()


def addmv(out: Any, bias: Any, a_mn: Tensor, x_n: Tensor, *args: Any, **kwargs: Any) -> Work:
    """numel(A)."""
    return a_mn.numel()


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
