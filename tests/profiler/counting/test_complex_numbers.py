"""A MAC is a real multiply-add: a complex multiply-add is four, however computed, and one in the second figure."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from swinmr_profiling.profiler.counting import (
    count_forward,
    count_training_step,
    forward_backward,
    register_formula,
)
from swinmr_profiling.profiler.counting.operators.operator_table import COUNTED
from swinmr_profiling.scripts.counter_cases.case_modules import Call, inference_mode

C64 = torch.complex64
# (2, 4, 3 x 3) over 16 x 16 places.
CONV = 16 * 16 * 4 * 2 * 9


def numbers(*shape: int, dtype: torch.dtype = C64) -> torch.Tensor:
    return torch.randn(*shape, dtype=C64).to(dtype)


def counts(function, *inputs) -> tuple[int, int]:
    """MACs, and MACs with one per complex multiply-add."""
    module = function if isinstance(function, nn.Module) else Call(function)
    report = count_forward(module, inputs)
    assert report.uncounted_operators == {}
    assert report.flops == 2 * report.macs
    return report.macs, report.macs_complex_as_one


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32])
def test_the_two_figures_of_a_convolution_and_a_product(dtype):
    conv = nn.Conv2d(2, 4, 3, padding=1, dtype=C64).to(dtype)
    assert counts(conv, numbers(1, 2, 16, 16, dtype=dtype)) == (73_728, 18_432)
    assert counts(torch.mm, numbers(5, 16, dtype=dtype), numbers(16, 8, dtype=dtype)) == (4 * 640, 640)


# name -> (layer, input shape, complex multiply-adds: N x places x elements of the weight).
LAYERS = {
    "Conv1d": (lambda: nn.Conv1d(2, 4, 3, dtype=C64), (2, 2, 10), 2 * 8 * 24),
    "Conv2d, grouped": (lambda: nn.Conv2d(4, 4, 3, groups=2, dtype=C64), (1, 4, 8, 8), 36 * 72),
    "Conv2d, unbatched": (lambda: nn.Conv2d(4, 4, 3, dtype=C64), (4, 8, 8), 36 * 144),
    "Conv2d, uneven padding": (
        lambda: nn.Conv2d(2, 4, 4, padding="same", dtype=C64),
        (1, 2, 16, 16),
        256 * 128,
    ),
    "Conv2d, strided": (lambda: nn.Conv2d(2, 4, 3, 2, 1, dtype=C64), (1, 2, 16, 16), 64 * 72),
    "Conv3d": (lambda: nn.Conv3d(2, 4, 3, bias=False, dtype=C64), (1, 2, 5, 5, 5), 27 * 216),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 4, 3, dtype=C64), (2, 2, 10), 2 * 10 * 24),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 4, 3, 2, dtype=C64), (1, 2, 5, 5), 25 * 72),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 4, 3, dtype=C64), (1, 2, 4, 4, 4), 64 * 216),
    "Linear": (lambda: nn.Linear(16, 8, dtype=C64), (5, 16), 640),
    "Linear without bias": (lambda: nn.Linear(16, 8, bias=False, dtype=C64), (2, 5, 16), 1280),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_forward_and_backward(name):
    make, shape, products = LAYERS[name]
    layer, x = make(), numbers(*shape)
    assert counts(layer, x) == (4 * products, products)
    assert counts(inference_mode(layer), x) == (4 * products, products)
    # Two gradients of the forward's size; without the input's, one.
    whole = count_training_step(forward_backward, layer, (x.clone().requires_grad_(),))
    assert (whole.training_macs, whole.macs_complex_as_one) == (12 * products, 3 * products)
    first = count_training_step(forward_backward, layer, (x,))
    assert (first.training_macs, first.macs_complex_as_one) == (8 * products, 2 * products)


def test_the_gradient_of_the_gradient():
    """A gradient penalty: as many times four as the same layer on real numbers."""

    def penalty(module, x):
        (gradient,) = torch.autograd.grad(module(x).abs().square().sum(), x, create_graph=True)
        gradient.abs().square().sum().backward()

    figures = {}
    for dtype in (torch.float32, C64):
        layer = nn.Conv2d(2, 4, 3, dtype=dtype)
        x = torch.randn(1, 2, 8, 8, dtype=dtype, requires_grad=True)
        figures[dtype] = count_training_step(penalty, layer, (x,), create_graph=True)
    assert figures[C64].macs_complex_as_one == figures[torch.float32].macs
    assert figures[C64].macs == 4 * figures[torch.float32].macs


def gradient(x, w):
    return torch.func.grad(lambda w: F.conv2d(x, w).abs().sum())(w)


def hessian_by_vector(x, w):
    def inner(w):
        return gradient(x, w).abs().square().sum()

    return torch.func.grad(inner)(w)


def tangent(x, w):
    return torch.func.jvp(F.conv2d, (x, w), (x, w))[1]


def batch_of_gradients(x, w):
    return torch.vmap(gradient, (0, None))(x[:, None].expand(3, *x[:, None].shape[1:]).clone(), w)


@pytest.mark.parametrize("differentiated", [gradient, hessian_by_vector, tangent, batch_of_gradients])
def test_torch_func(differentiated):
    """As many times four as the same on real numbers."""
    real = count_forward(Call(differentiated), (torch.randn(1, 2, 8, 8), torch.randn(4, 2, 3, 3))).macs
    assert real >= 2 * 36 * 72
    assert counts(differentiated, numbers(1, 2, 8, 8), numbers(4, 2, 3, 3)) == (4 * real, real)


def test_what_checkpointing_computes_again():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, padding=1, dtype=C64)

        def forward(self, x):
            # abs keeps the convolution's result for its gradient, so that the whole of it is computed again.
            return checkpoint(lambda z: self.conv(z).abs(), x, use_reentrant=False)

    x = numbers(1, 2, 16, 16).requires_grad_()
    report = count_training_step(forward_backward, Checkpointed(), (x,))
    assert report.training_macs == 3 * 4 * CONV
    assert report.recomputed_macs == 4 * CONV


def test_a_real_convolution_beside_a_complex_one_stays_real():
    # The complex one needs no gradient here: nothing of autograd may be taken for its own.
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.real = nn.Conv2d(2, 2, 3, padding=1)
            self.complex = nn.Conv2d(2, 4, 3, padding=1, dtype=C64).requires_grad_(False)
            self.after = nn.Conv2d(2, 4, 3, padding=1)

        def forward(self, x, z):
            return self.real(x), self.complex(z), self.after(x)

    x = torch.randn(1, 2, 16, 16)
    report = count_training_step(forward_backward, Beside(), (x, numbers(1, 2, 16, 16)))
    # Forward and weight gradients of the real ones (2 and 4 channels out), the forward of the complex one.
    assert report.training_macs == 2 * (CONV // 2 + CONV) + 4 * CONV
    assert report.macs_complex_as_one == 2 * (CONV // 2 + CONV) + CONV


def test_a_complex_convolution_of_another_one():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(2, 4, 3, padding=1, dtype=C64)
            self.second = nn.Conv2d(4, 2, 3, padding=1, dtype=C64)

        def forward(self, x):
            return self.second(self.first(x))

    report = count_training_step(forward_backward, Two(), (numbers(1, 2, 16, 16),))
    assert report.training_macs == 4 * (2 + 3) * CONV
    first, second = report.by_module["children"]
    assert (first["macs"], first["macs_complex_as_one"]) == (4 * 2 * CONV, 2 * CONV)
    assert (second["macs"], second["macs_complex_as_one"]) == (4 * 3 * CONV, 3 * CONV)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda conv: torch.jit.trace(conv, numbers(1, 2, 16, 16))]
)
def test_scripts_and_traces(make):
    conv = nn.Conv2d(2, 4, 3, padding=1, dtype=C64)
    assert counts(make(conv), numbers(1, 2, 16, 16)) == (4 * CONV, CONV)


class ResidualAfterComplex(nn.Module):
    """A complex convolution, then real ones with sums between, as a script runs them in one call from Python."""

    def __init__(self):
        super().__init__()
        self.complex = nn.Conv2d(2, 4, 3, padding=1, dtype=C64)
        self.real = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        y = self.complex(x).abs()
        for _ in range(6):
            y = self.real(y) + self.real(y + y)
        return y


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("make", [lambda net: net, torch.jit.script])
def test_real_convolutions_after_a_complex_one(make):
    real = 12 * 256 * 16
    assert counts(make(ResidualAfterComplex()), numbers(1, 2, 16, 16)) == (4 * CONV + real, CONV + real)


class GaussByHand(nn.Module):
    """Real weights for the parts of a complex image: three real convolutions, also where a script runs them."""

    def __init__(self):
        super().__init__()
        self.v, self.u = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)
        self.v_u = nn.Conv2d(2, 4, 3, padding=1)

    def forward(self, x):
        a, b = x.real, x.imag
        p, q, r = self.v(a), self.u(b), self.v_u(a + b)
        return torch.complex(p - q, r - p - q)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("make", [lambda net: net, torch.jit.script])
def test_parts_by_real_weights(make):
    assert counts(make(GaussByHand()), numbers(1, 2, 16, 16)) == (3 * CONV, 3 * CONV)


def test_a_conjugate_input():
    # Conjugation is put off until the convolution, which does it before it takes the parts.
    weight = numbers(4, 2, 3, 3)
    assert counts(lambda x: F.conv2d(x.conj(), weight.conj()), numbers(1, 2, 16, 16)) == (
        4 * 196 * 72,
        196 * 72,
    )


def test_a_batch_by_vmap():
    w = numbers(4, 2, 3, 3)
    batched = torch.vmap(F.conv2d)
    # 6 x 6 places, three images with a weight each.
    assert counts(batched, numbers(3, 1, 2, 8, 8), w.expand(3, 4, 2, 3, 3).clone()) == (
        4 * 3 * 36 * 72,
        3 * 36 * 72,
    )


# name -> (function, shapes, complex multiply-adds)
PRODUCTS = {
    "matmul by a conjugate": (lambda a, b: a @ b.mH, ((3, 4), (5, 4)), 60),
    "matmul broadcast": (torch.matmul, ((1, 10, 16), (2, 4, 16, 12)), 2 * 4 * 10 * 16 * 12),
    "bmm": (torch.bmm, ((2, 3, 4), (2, 4, 5)), 120),
    "addmm": (torch.addmm, ((3, 5), (3, 4), (4, 5)), 60),
    "baddbmm": (torch.baddbmm, ((2, 3, 5), (2, 3, 4), (2, 4, 5)), 120),
    "addbmm": (torch.addbmm, ((3, 5), (2, 3, 4), (2, 4, 5)), 120),
    "mv": (torch.mv, ((3, 4), (4,)), 12),
    "addmv": (torch.addmv, ((3,), (3, 4), (4,)), 12),
    "dot": (torch.dot, ((7,), (7,)), 7),
    "vdot": (torch.vdot, ((7,), (7,)), 7),
    "inner": (torch.inner, ((3, 4), (5, 4)), 60),
    "einsum": (
        lambda a, b: torch.einsum("bixy,ioxy->boxy", a, b),
        ((2, 3, 4, 5), (3, 6, 4, 5)),
        2 * 3 * 6 * 20,
    ),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), ((2, 3, 4, 5), (4, 5, 6)), 720),
    "multi_dot": (lambda *m: torch.linalg.multi_dot(m), ((2, 3), (3, 4), (4, 5)), 24 + 40),
    "matrix_power 3": (lambda a: torch.matrix_power(a, 3), ((4, 4),), 2 * 64),
    "bilinear": (F.bilinear, ((3, 4), (3, 5), (6, 4, 5)), 3 * 6 * (20 + 5)),
    # Nothing is summed.
    "outer": (torch.outer, ((3,), (4,)), 0),
    "kron": (torch.kron, ((3, 4), (2, 2)), 0),
    "fft": (torch.fft.fft2, ((2, 8, 8),), 0),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    function, shapes, products = PRODUCTS[name]
    inputs = [numbers(*shape) for shape in shapes]
    assert counts(function, *inputs) == (4 * products, products)
    assert counts(inference_mode(function), *inputs) == (4 * products, products)


@pytest.mark.skipif(not hasattr(torch, "_foreach_mm"), reason="this torch has no products of lists")
def test_products_of_lists():
    pairs = [(numbers(3, 4), numbers(4, 5)), (numbers(2, 3), numbers(3, 4))]
    assert counts(lambda *m: torch._foreach_mm(list(m[::2]), list(m[1::2])), *pairs[0], *pairs[1]) == (
        4 * 84,
        84,
    )


def test_attention_and_recurrence():
    def attention(q, k, v):
        return (q @ k.mH).abs().softmax(-1).to(C64) @ v

    q, k = numbers(2, 4, 10, 16), numbers(2, 4, 7, 16)
    assert counts(attention, q, k, numbers(2, 4, 7, 16)) == (4 * 17_920, 17_920)
    products = 3 * 7 * (24 * 16 + 24 * 24)
    assert counts(nn.RNN(16, 24, dtype=C64), numbers(3, 7, 16)) == (4 * products, products)


def test_the_operators_numbers_decide():
    real, x = torch.randn(16, 8), numbers(5, 16)
    # Promoted: a complex product.
    assert counts(lambda a, b: a @ b.to(C64), x, real) == (4 * 640, 640)
    # Real and imaginary part by a real matrix: two real ones, in both figures.
    assert counts(lambda a, b: torch.view_as_real(a).transpose(-1, -2) @ b, x, real) == (2 * 640, 2 * 640)


def test_real_convolutions_of_real_and_imaginary_parts_are_real():
    """The user's own composition has real operators: four of them, or Gauss's three in PyTorch's own order."""

    def four(x, w):
        a, b, v, u = x.real, x.imag, w.real, w.imag
        return torch.complex(F.conv2d(a, v) - F.conv2d(b, u), F.conv2d(a, u) + F.conv2d(b, v))

    def three(x, w):
        x = torch.view_as_real(x)
        a, b = x[..., 0], x[..., 1]
        w = torch.view_as_real(w)
        v, u = w[..., 0], w[..., 1]
        p, q = F.conv2d(a, v), F.conv2d(b, u)
        v_u, a_b = v + u, a + b
        return torch.complex(p - q, F.conv2d(a_b, v_u) - p - q)

    x, w, one = numbers(1, 2, 16, 16), numbers(4, 2, 3, 3), 14 * 14 * 72
    assert counts(four, x, w) == (4 * one, 4 * one)
    assert counts(three, x, w) == (3 * one, 3 * one)


def test_a_network_of_real_and_complex_layers():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, padding=1, dtype=C64)
            self.linear = nn.Linear(16, 8, dtype=C64)
            self.real = nn.Conv2d(4, 4, 1)

        def forward(self, x):
            return self.real(self.linear(self.conv(x)).abs())

    linear, real = 64 * 16 * 8, 16 * 8 * 4 * 4
    report = count_forward(Network(), (numbers(1, 2, 16, 16),))
    assert report.macs == 4 * (CONV + linear) + real
    assert report.macs_complex_as_one == CONV + linear + real
    assert report.by_kind["linear"] == 4 * linear
    assert report.by_operator["aten::convolution"] == 4 * CONV + real
    assert report.by_operator_complex_as_one["aten::convolution"] == CONV + real
    assert list(report.by_operator_complex_as_one) == list(report.by_operator)
    tree = report.by_module
    assert (tree["macs"], tree["macs_complex_as_one"]) == (report.macs, report.macs_complex_as_one)
    assert [child["macs_complex_as_one"] for child in tree["children"]] == [CONV, linear, real]
    assert "counts as four real ones" in report.note
    assert f"the MACs are {report.macs_complex_as_one:,}" in report.note
    assert json.loads(json.dumps(report.to_json()))["macs_complex_as_one"] == report.macs_complex_as_one


def test_without_complex_numbers_the_figures_are_one():
    report = count_forward(nn.Linear(16, 8), (torch.randn(5, 16),))
    assert report.macs_complex_as_one == report.macs == 640
    assert report.by_operator_complex_as_one == report.by_operator
    assert report.note is None


@torch.library.custom_op("counting_tests::complex_product", mutates_args=())
def complex_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@complex_product.register_fake
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])


def test_a_registered_formula_counts_complex_multiply_adds(monkeypatch):
    monkeypatch.setitem(COUNTED, "counting_tests::complex_product", None)
    register_formula("counting_tests::complex_product", lambda out, a, b: a.numel() * b.shape[1])
    assert counts(complex_product, numbers(5, 16), numbers(16, 8)) == (4 * 640, 640)
    assert counts(complex_product, torch.randn(5, 16), torch.randn(16, 8)) == (640, 640)
