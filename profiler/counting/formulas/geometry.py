"""MACs of distances, grids and bilinear layers. The handles' signature and unit are those of the folder's."""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import Work


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
