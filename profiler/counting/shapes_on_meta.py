"""Results of the commonest operators on tensors without data, made without asking PyTorch's kernels of shapes.

Many of those are programs in Python (torch._refs, torch._decomp) and cost ten times what an operator on a CPU costs.
What is answered here are plain tensors of one floating dtype whose result has the shape and layout of an input, and
products of matrices. Everything else, whatever is to raise an error among it, is left to PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# A result like the one tensor that goes in; like two of one shape and layout, or one and a number.
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
PRODUCTS = frozenset(["aten::mm", "aten::addmm", "aten::bmm"])
SOFTMAXES = frozenset(["aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"])
ANSWERED = LIKE_ONE | LIKE_TWO | INTO_FIRST | PRODUCTS | SOFTMAXES
PLAIN_OVERLOADS = frozenset(["default", "Tensor"])


def is_answered(name: str, func: Any) -> bool:
    """Whether an operator overload is one that ``result_on_meta`` may know."""
    return name in ANSWERED and func._overloadname in PLAIN_OVERLOADS


def result_on_meta(name: str, args: Any, kwargs: Any) -> Tensor | None:
    """The result of an operator of which ``is_answered`` holds; None: ask PyTorch."""
    first = args[0]
    if type(first) not in (Tensor, nn.Parameter) or first.device.type != "meta":
        return None
    if first.layout is not torch.strided or not first.is_floating_point() or "out" in kwargs:
        return None
    if name in PRODUCTS:
        return _product(name, args)
    if name in SOFTMAXES:
        return _softmax(args, kwargs)
    if not all(map(_is_number, kwargs.values())) or not all(_goes_with(other, first) for other in args[1:]):
        return None
    if name in INTO_FIRST:
        # Into a tensor of which many elements are one PyTorch does not write.
        return None if 0 in first.stride() else first
    if first.is_contiguous():
        return torch.empty(first.shape, dtype=first.dtype, device="meta")
    return None


def _is_number(value: Any) -> bool:
    """A number, a word, or nothing: what leaves the dtype as it is."""
    return value is None or isinstance(value, (bool, int, float, str))


def _goes_with(other: Any, first: Tensor) -> bool:
    """A number, or a tensor of the same shape, layout and dtype."""
    if _is_number(other):
        return True
    return (
        type(other) in (Tensor, nn.Parameter)
        and other.device == first.device
        and other.dtype is first.dtype
        and other.shape == first.shape
        and other.stride() == first.stride()
    )


def _softmax(args: Any, kwargs: Any) -> Tensor | None:
    """(x, axis, whether to make single precision of half, or a dtype)."""
    x, axis, *others = args
    as_it_is = not kwargs and all(other in (False, None) for other in others)
    if not as_it_is or not x.is_contiguous() or not -x.dim() <= axis < x.dim():
        return None
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


def _product(name: str, args: Any) -> Tensor | None:
    """mm, bmm (a, b) and addmm (added, a, b, ...)."""
    *added, a, b = args if len(args) <= 3 else args[:3]
    for factor in (*added, a, b):
        if type(factor) not in (Tensor, nn.Parameter) or factor.device.type != "meta":
            return None
        if factor.dtype is not a.dtype or factor.layout is not torch.strided:
            return None
    dims = 3 if name == "aten::bmm" else 2
    if a.dim() != dims or b.dim() != dims or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    shape = (*a.shape[:-1], b.shape[-1])
    if added and added[0].shape not in (shape, shape[-1:]):
        return None
    return torch.empty(shape, dtype=a.dtype, device="meta")
