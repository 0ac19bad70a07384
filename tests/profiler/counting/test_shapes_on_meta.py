"""Results that are known without a kernel are PyTorch's own: shape, layout and dtype, or its own error."""

import itertools

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.operators.shapes_on_meta import (
    INTO_FIRST,
    LIKE_ONE,
    LIKE_TWO,
    is_answered,
    result_on_meta,
)

LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "every second": lambda x: x[..., ::2],
    "sliced": lambda x: x[:, 1:],
    "expanded": lambda x: x[:1].expand(x.shape),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "one long": lambda x: x[:, :1],
    "empty": lambda x: x[:0],
}
BOUNDS = {"aten::clamp", "aten::clamp_min"}
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)


def operator(name):
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    # add.default adds two numbers.
    return packet.Tensor if name.removesuffix("_") in LIKE_TWO else packet.default


def looks(result):
    """Shape, strides and dtype of a result. Of an axis of one number the stride is nobody's."""
    if isinstance(result, tuple):
        return [looks(one) for one in result]
    strides = [stride for stride, size in zip(result.stride(), result.shape, strict=True) if size != 1]
    return tuple(result.shape), strides if result.numel() else [], result.dtype


def outcome(function, *args, **kwargs):
    """What a result looks like, or that there is an error."""
    try:
        return looks(function(*args, **kwargs))
    except (RuntimeError, IndexError):
        return "error"


def without_data(x):
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def check(name, *args, **kwargs):
    """Whether the result was known; where it was, it is that of the kernel."""
    func = operator(name)
    assert is_answered(name, func)
    meta = [without_data(x) if isinstance(x, torch.Tensor) else x for x in args]
    known = result_on_meta(name, meta, kwargs)
    if known is None:
        return False
    # In-place operators change their arguments, and nothing else of them than values.
    assert looks(known) == outcome(func, *args, **kwargs)
    return True


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted((LIKE_ONE | INTO_FIRST) - {f"{name}_" for name in LIKE_TWO} - BOUNDS))
def test_of_one_tensor(name, dtype):
    known = {layout: check(name, make(torch.ones(3, 4, 6, 2).to(dtype))) for layout, make in LAYOUTS.items()}
    assert any(known.values()) == dtype.is_floating_point
    assert known["plain"] == dtype.is_floating_point


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(LIKE_TWO | {f"{name}_" for name in LIKE_TWO}))
def test_of_two_tensors_or_a_number(name, dtype):
    x = torch.ones(3, 3, 6, 2).to(dtype)
    for one, other in itertools.product(LAYOUTS.values(), repeat=2):
        check(name, one(x.clone()), other(x))
    others = [
        torch.ones(shape, dtype=dtype) for shape in [(), (2,), (6, 2), (3, 1, 1), (6, 1), (2, 3, 3, 6, 2)]
    ]
    others += [torch.ones(4, 6, dtype=dtype).T[:, :2], torch.ones(3, 3, 6, 2, dtype=torch.float64)]
    for other in (2, 2.5, True, 2j, *others):
        check(name, x.clone(), other)
        check(name, x.transpose(0, 2), other)
        if isinstance(other, torch.Tensor) and not name.endswith("_"):
            check(name, other, x)
    if dtype.is_floating_point:
        assert all(check(name, x.clone(), other) for other in (*others[:5], others[6]))
    assert check(name, x.clone(), x.clone()) == check(name, x.clone(), 2) == dtype.is_floating_point


def test_of_softmaxes():
    x = torch.ones(3, 4)
    for name in ("aten::_softmax", "aten::_log_softmax"):
        assert check(name, x, 1, False)
        assert check(name, x.bfloat16(), -2, False)
        assert not check(name, x, 2, False)
        assert not check(name, x.T, 0, False)
        assert not check(name, x.bfloat16(), 1, True)
    assert check("aten::_safe_softmax", x, 1)
    assert not check("aten::_safe_softmax", x, 1, torch.float64)


def test_of_bounds():
    x = torch.ones(3, 4)
    assert check("aten::clamp", x, None, 5)
    assert check("aten::clamp", x, 0.5, 5)
    assert check("aten::clamp_min", x, 2)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_of_products(dtype):
    a, b = torch.ones(3, 4, dtype=dtype), torch.ones(4, 5, dtype=dtype)
    assert check("aten::mm", a, b)
    assert check("aten::mm", torch.ones(4, 3, dtype=dtype).T, torch.ones(5, 4, dtype=dtype).T)
    assert check("aten::bmm", a.expand(2, 3, 4), b.expand(2, 4, 5))
    assert check("aten::addmm", torch.ones(5, dtype=dtype), a, b)
    assert check("aten::addmm", torch.ones(3, 5, dtype=dtype), a, b, beta=2)
    # Left to PyTorch, which knows them or raises.
    assert not check("aten::addmm", torch.ones(3, 1, dtype=dtype), a, b)
    assert not check("aten::mm", a, a)
    assert not check("aten::mm", a.expand(2, 3, 4), b.expand(2, 4, 5))
    assert not check("aten::bmm", a.expand(2, 3, 4), b.expand(3, 4, 5))
    assert not check("aten::mm", a, b.double())


def test_of_linear_layers_and_norms():
    x, weight, bias = torch.ones(2, 3, 4), torch.ones(5, 4), torch.ones(5)
    assert check("aten::linear", x, weight)
    assert check("aten::linear", x[0], weight, bias)
    assert not check("aten::linear", x.transpose(0, 1), weight, bias)
    assert not check("aten::linear", x, weight.T)
    assert not check("aten::linear", x, torch.ones(5, 4, 4))
    assert not check("aten::linear", x, weight, torch.ones(4))
    assert check("aten::native_layer_norm", x, [4], torch.ones(4), torch.ones(4), 1e-5)
    assert check("aten::native_layer_norm", x, [3, 4], None, None, 1e-5)
    assert not check("aten::native_layer_norm", x.bfloat16(), [4], None, None, 1e-5)
    assert not check("aten::native_layer_norm", x, [5], None, None, 1e-5)
    assert not check("aten::native_layer_norm", x, [4], torch.ones(3), None, 1e-5)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic", "nearest"])
def test_of_resizing(kind):
    name, align = f"aten::upsample_{kind}2d", [] if kind == "nearest" else [False]
    x = torch.ones(2, 3, 4, 5)
    assert check(name, x, [7, 9], *align)
    assert check(name, x, [8, 10], *align, 2.0, 2.0)
    vec = getattr(torch.ops.aten, f"upsample_{kind}2d").vec
    assert is_answered(name, vec)
    for size, factors in (([7, 9], None), (None, [1.7, 2.0])):
        known = result_on_meta(name, (without_data(x), size, *align, factors), {})
        assert looks(known) == looks(vec(x, size, *align, factors))
    assert not check(name, x, [7, 9, 2], *align)
    assert not check(name, x.contiguous(memory_format=torch.channels_last), [7, 9], *align)


def test_errors_are_pytorchs():
    class Wrong(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    for function in (lambda x: x @ x, lambda x: x + torch.ones(7), lambda x: x.add_(torch.ones(2, 3, 4))):
        with pytest.raises(RuntimeError):
            count_forward(Wrong(function), (torch.ones(3, 4),))
