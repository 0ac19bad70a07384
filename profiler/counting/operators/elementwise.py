"""Estimates of the work that is not a matrix product, kept apart from ``macs``.

Elementwise, normalisation, pooling, interpolation and FFT work is estimated in FLOPs per element by the group
an operator is in (``free_operators.py``); a transcendental function counts as a handful of operations. Fused
kernels hide such work (an attention kernel's scaling, a recurrent layer's gates), so this is a guide to where
time goes besides the products and not a second exact figure.

Softmax is estimated in multiply-adds, two per element: subtract the maximum and exponentiate, accumulate and
scale. Attention kernels contain one over B Hq Nq Nk scores, which is added so that fused and unfused
attention agree.
"""

from collections.abc import Callable
from math import log2, prod
from typing import Any

import torch
from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import Work, attention
from swinmr_profiling.profiler.counting.operators.nested import is_nested, nested_numel, sum_of_parts

SOFTMAX_MACS_PER_ELEMENT = 2


def _first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (tuple, list)):
        return next((t for item in value if (t := _first_tensor(item)) is not None), None)
    return None


def _numel(value: Any) -> int:
    tensor = _first_tensor(value)
    return 0 if tensor is None else nested_numel(tensor)


def _last_tensor_numel(out: Any, args: Any) -> int:
    return next((t.numel() for t in reversed(args) if isinstance(t, torch.Tensor)), 0)


def _list_numel(out: Any, args: Any) -> int:
    tensors = args[0] if args and isinstance(args[0], (tuple, list)) else ()
    return sum(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def _bag_numel(out: Any, args: Any) -> int:
    """Rows taken of a table times their width: (table, indices, ...); backwards (gradient of bags, indices, ...)."""
    rows: Tensor = next(t for t in args[1:] if not t.is_floating_point())
    return rows.numel() * int(args[0].shape[-1])


def _pair_numel(out: Any, args: Any) -> int:
    rows, width = next(t.shape for t in args if isinstance(t, Tensor) and t.dim() == 2)
    return (rows * (rows - 1) // 2) * width


def _window_numel(out: Any, args: Any) -> int:
    given = args[1] if len(args) > 1 else 1
    kernel: tuple[int, ...] = (given,) if isinstance(given, int) else tuple(given)
    tensor = _first_tensor(out)
    assert tensor is not None
    # One number stands for every spatial dimension.
    sides = max(1, tensor.dim() - 2) if len(kernel) == 1 else 1
    return tensor.numel() * int(prod(kernel) ** sides)


def _fft_flops(factor: int, out: Any, args: Any) -> int:
    """5 N log2 N real operations per transform of N complex points; half of that where one side is real."""
    x, axes = args[0], args[1]
    result = _first_tensor(out)
    assert result is not None
    full = x if x.numel() >= _numel(out) else result
    points = prod(full.shape[axis] for axis in axes)
    real_side = not (x.is_complex() and result.is_complex())
    return round(factor * full.numel() * log2(max(points, 2)) / (2 if real_side else 1))


# Rule of a group -> the elements of a call, of its result and its arguments.
ELEMENTS: dict[str, Callable[[Any, Any], int]] = {
    "output": lambda out, args: _numel(out),
    "input": lambda out, args: _numel(args[0] if args else None),
    "window": _window_numel,
    "lists": _list_numel,
    "source": _last_tensor_numel,
    "bag": _bag_numel,
    "pairs": _pair_numel,
}


def elementwise_flops(rule: str, factor: int, out: Any, args: Any) -> int:
    """FLOPs of one call of a free operator, estimated by its group's rule."""
    return _fft_flops(factor, out, args) if rule == "fft" else factor * ELEMENTS[rule](out, args)


def softmax_macs(out: Any) -> int:
    """Multiply-adds of a softmax over the elements of ``out``, estimated."""
    return SOFTMAX_MACS_PER_ELEMENT * _numel(out)


# Fused operators that contain a softmax -> its number of elements, from the operator's arguments.
SOFTMAX_INSIDE: dict[Callable[..., Work], Callable[..., int]] = {
    attention.attention: lambda out, q, k, *_, **__: prod(q.shape[:-1]) * k.shape[-2],
    attention.attention_bnhd: lambda out, q, k, *_, **__: prod(q.shape[:-1]) * k.shape[-3],
    attention.efficient_attention_bnhd: lambda out, q, k, *_, **__: prod(q.shape[:-1]) * k.shape[-3],
    attention.multi_head_attention: (
        lambda out, q, k, v, width, heads, *_, **__: heads * q.numel() // width * k.shape[1]
    ),
    attention.transformer_encoder_layer: (
        lambda out, x, width, heads, *_, **__: heads * x.numel() // width * x.shape[1]
    ),
}


def softmax_macs_inside(formula: Callable[..., Work], out: Any, args: Any, kwargs: Any) -> int:
    """Multiply-adds of the softmax within a fused attention operator; 0 for operators without one."""
    scores = SOFTMAX_INSIDE.get(formula)
    if scores is None:
        return 0
    if any(map(is_nested, args)):
        return SOFTMAX_MACS_PER_ELEMENT * sum_of_parts(scores, out, args, kwargs)
    return SOFTMAX_MACS_PER_ELEMENT * scores(out, *args, **kwargs)
