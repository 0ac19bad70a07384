"""Results of the commonest operators on tensors without data, made without asking PyTorch's kernels of shapes.

Many of those are programs in Python (torch._refs, torch._decomp) and cost ten times what an operator on a CPU costs.
What is answered here are plain tensors of one floating dtype whose result is like an input, products of matrices, and
resizing. Everything else, whatever is to raise an error among it, is left to PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

Result = Tensor | tuple[Tensor, ...] | None

# A result like the one tensor that goes in; like two that go together, or one and numbers.
_LIKE_ONE = """
    aten::sigmoid aten::tanh aten::relu aten::gelu aten::silu aten::neg aten::exp aten::sqrt aten::rsqrt aten::sin
    aten::cos aten::erf aten::softplus aten::leaky_relu aten::elu aten::hardswish aten::hardsigmoid aten::mish
    aten::reciprocal aten::log aten::clamp aten::clamp_min"""
LIKE_ONE = frozenset(_LIKE_ONE.split())
LIKE_TWO = frozenset(["aten::add", "aten::sub", "aten::mul", "aten::div"])
# The same, written into the first.
_INTO_FIRST = """
    aten::sigmoid_ aten::tanh_ aten::relu_ aten::silu_ aten::neg_ aten::exp_ aten::sqrt_ aten::add_ aten::sub_
    aten::mul_ aten::div_"""
INTO_FIRST = frozenset(_INTO_FIRST.split())
PLAIN_OVERLOADS = frozenset(["default", "Tensor"])


def is_answered(name: str, func: Any) -> bool:
    """Whether an operator overload is one that ``result_on_meta`` may know."""
    if name not in ANSWERS or isinstance(func, torch._ops.HigherOrderOperator):
        return False
    overload = func._overloadname
    return overload in PLAIN_OVERLOADS or (ANSWERS[name] is _resized and overload == "vec")


def result_on_meta(name: str, args: Any, kwargs: Any) -> Result:
    """The result of an operator of which ``is_answered`` holds; None: ask PyTorch."""
    if not _is_plain(args[0]) or "out" in kwargs:
        return None
    return ANSWERS[name](name, *args, **kwargs)


def _is_plain(value: Any, like: Tensor | None = None) -> bool:
    """A tensor without data of a floating dtype, that of another."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and value.device.type == "meta"
        and value.layout is torch.strided
        and (value.is_floating_point() if like is None else value.dtype is like.dtype)
    )


def _empty(shape: Any, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device="meta")


def _is_number(value: Any) -> bool:
    """A number, a word, or nothing: what leaves the dtype as it is. Subtraction refuses truth values."""
    return value is None or (isinstance(value, (int, float, str)) and not isinstance(value, bool))


def _like_first(name: str, first: Tensor, *others: Any, **kwargs: Any) -> Result:
    tensors = [other for other in others if isinstance(other, Tensor)]
    rest = (*(other for other in others if not isinstance(other, Tensor)), *kwargs.values())
    goes_with_first = (_is_plain(t, first) and _repeats_to(t.shape, first.shape) for t in tensors)
    if not (all(map(_is_number, rest)) and all(goes_with_first)):
        return None
    if name in INTO_FIRST:
        # Into a tensor of which many elements are one PyTorch does not write.
        return None if 0 in first.stride() else first
    if _in_order(first):
        return _empty(first.shape, first)
    if all(other.shape == first.shape and other.stride() == first.stride() for other in tensors):
        result = torch.empty_like(first)
        # Of tensors with holes the layout is PyTorch's to say.
        return result if result.stride() == first.stride() else None
    return None


def _repeats_to(shape: torch.Size, first: torch.Size) -> bool:
    """Whether a tensor of a shape is repeated to that of another, and not that one, too."""
    pairs = zip(reversed(shape), reversed(first), strict=False)
    return len(shape) <= len(first) and all(a in (1, b) for a, b in pairs)


def _in_order(first: Tensor) -> bool:
    """Whether the strides of a first tensor alone settle that a result is contiguous (TensorIterator sorts the axes by
    them, and asks the next tensor only where two are equal or one is none).
    """
    strides = [stride for stride, size in zip(first.stride(), first.shape, strict=True) if size != 1]
    return all(a > b > 0 for a, b in pairwise(strides)) and 0 not in strides


def _softmax(name: str, x: Tensor, axis: int, other: Any = None, **kwargs: Any) -> Result:
    """other: whether to make single precision of half, or a dtype."""
    as_it_is = not kwargs and other in (False, None)
    return _empty(x.shape, x) if as_it_is and x.is_contiguous() and -x.dim() <= axis < x.dim() else None


def _product(name: str, *args: Any, **kwargs: Any) -> Result:
    """mm, bmm (a, b) and addmm (added, a, b)."""
    *added, a, b = args
    dims = 3 if name == "aten::bmm" else 2
    if not all(_is_plain(factor, a) for factor in args) or a.dim() != dims or b.dim() != dims:
        return None
    shape = (*a.shape[:-1], b.shape[-1])
    fits = a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    return _empty(shape, a) if fits and (not added or added[0].shape in (shape, shape[-1:])) else None


def _linear(name: str, x: Tensor, weight: Any, bias: Any = None) -> Result:
    fits = (
        (_is_plain(weight, x) and weight.dim() == 2 and x.is_contiguous() and x.dim() >= 2)
        and x.shape[-1] == weight.shape[1]
        and (bias is None or (_is_plain(bias, x) and bias.shape == weight.shape[:1]))
    )
    return _empty((*x.shape[:-1], weight.shape[0]), x) if fits else None


def _layer_norm(name: str, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Result:
    """The result with means and deviations, which half precision has in single."""
    behind = tuple(x.shape[x.dim() - len(shape) :])
    given = [t for t in (weight, bias) if t is not None]
    fits = x.dtype in (torch.float32, torch.float64) and x.is_contiguous() and behind == tuple(shape)
    if not (fits and all(_is_plain(t, x) and tuple(t.shape) == behind for t in given)):
        return None
    means = (*x.shape[: x.dim() - len(shape)], *(1 for _ in shape))
    return _empty(x.shape, x), _empty(means, x), _empty(means, x)


def _resized(name: str, x: Tensor, size: Any, *args: Any) -> Result:
    """Interpolation to a size, or by factors, given for each axis behind batch and channels."""
    if size is None:
        factors = args[-1]
        if not isinstance(factors, (list, tuple)) or len(factors) != x.dim() - 2:
            return None
        size = [int(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)]
    fits = x.dim() == len(size) + 2 and x.is_contiguous() and prod(x.shape) > 0 and min(size) > 0
    return _empty((*x.shape[:2], *size), x) if fits else None


ANSWERS: dict[str, Callable[..., Result]] = {
    **dict.fromkeys(LIKE_ONE | LIKE_TWO | INTO_FIRST, _like_first),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"), _softmax),
    **dict.fromkeys(("aten::mm", "aten::addmm", "aten::bmm"), _product),
    "aten::linear": _linear,
    "aten::native_layer_norm": _layer_norm,
    **dict.fromkeys(
        ("aten::upsample_bilinear2d", "aten::upsample_bicubic2d", "aten::upsample_nearest2d"), _resized
    ),
}
