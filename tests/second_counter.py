"""A second counter of multiply-adds, from descriptions of operators alone: it runs nothing and asks no tensor.

It shares no line with the profiler and works the other way round: an operator is a record of sizes, from which its
MACs and the shape of its result follow by the definitions in the comments, and from which a module is built that does
just that. `tests/profiler/counting/test_random_graphs.py` holds both counters against each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Shape = tuple[int, ...]


class Description:
    """Frozen: a copy of a module that has one may have the same."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Description:
        return self


@dataclass(frozen=True)
class Operator(Description):
    """kind: a key of KINDS; sizes: what its rules ask for; dtype: of its numbers."""

    kind: str
    sizes: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32

    def inputs(self) -> list[Shape]:
        return KINDS[self.kind].inputs(**self.sizes)

    def macs(self) -> int:
        """Real multiply-adds. Of complex numbers (a + ib)(c + id) takes four."""
        return KINDS[self.kind].macs(**self.sizes) * (4 if self.dtype.is_complex else 1)


@dataclass(frozen=True)
class Kind:
    """draw(rng) -> sizes; inputs(sizes) -> shapes; macs(sizes); build(sizes, dtype) -> callable of the inputs."""

    draw: Callable[[random.Random], dict[str, Any]]
    inputs: Callable[..., list[Shape]]
    macs: Callable[..., int]
    build: Callable[..., nn.Module]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.bfloat16)


class Calls(nn.Module):
    """A function with weights as parameters, which come last."""

    def __init__(self, function: Callable[..., Tensor], *weights: Tensor):
        super().__init__()
        self.function = function
        for place, weight in enumerate(weights):
            self.register_parameter(f"weight_{place}", nn.Parameter(weight))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *self._parameters.values())


def calls(function: Callable[..., Tensor]) -> Callable[..., nn.Module]:
    return lambda dtype, **_: Calls(function)


def small(rng: random.Random, most: int = 7) -> int:
    return rng.randint(1, most)


def placed(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many places a kernel finds along an axis."""
    return sum(1 for start in range(0, size + 2 * padding - dilation * (kernel - 1), stride))


def draw_convolution(dims: int) -> Callable[[random.Random], dict[str, Any]]:
    def draw(rng: random.Random) -> dict[str, Any]:
        kernel = tuple(rng.randint(1, 3) for _ in range(dims))
        dilation = rng.randint(1, 2)
        return {
            "batch": small(rng, 3),
            "groups": (groups := rng.choice((1, 1, 2, 3))),
            "into": groups * rng.randint(1, 3),
            "out": groups * rng.randint(1, 3),
            "kernel": kernel,
            "image": tuple(rng.randint(dilation * (k - 1) + 1, dilation * (k - 1) + 6) for k in kernel),
            "stride": rng.randint(1, 3),
            "padding": rng.randint(0, 2),
            "dilation": dilation,
        }

    return draw


def convolution_macs(batch, groups, into, out, kernel, image, stride, padding, dilation):
    """Each result (batch, out channel, place) sums over the channels of its group and the kernel."""
    places = prod(placed(n, k, stride, padding, dilation) for n, k in zip(image, kernel, strict=True))
    return sum(places * (into // groups) * prod(kernel) for _ in range(batch) for _ in range(out))


def transposed_macs(batch, groups, into, out, kernel, image, stride, padding, dilation):
    """Each number that goes in is spread over the kernel and the channels of its group."""
    return sum(prod(image) * (out // groups) * prod(kernel) for _ in range(batch) for _ in range(into))


def convolution(dims: int, transposed: bool = False, dtypes: tuple[torch.dtype, ...] | None = None) -> Kind:
    layer = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")

    def build(dtype, batch, groups, into, out, kernel, image, stride, padding, dilation):
        options = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "dtype": dtype,
        }
        return layer(into, out, kernel, **options)

    def draw(rng):
        sizes = draw_convolution(dims)(rng)
        if transposed:
            # The result must keep a place along each axis.
            sizes["padding"] = 0
        return sizes

    macs = transposed_macs if transposed else convolution_macs
    given = {} if dtypes is None else {"dtypes": dtypes}
    return Kind(draw, lambda batch, into, image, **_: [(batch, into, *image)], macs, build, **given)


def draw_attention(rng: random.Random) -> dict[str, Any]:
    return {name: small(rng) for name in ("batch", "heads", "queries", "keys", "width", "values")}


def attention_macs(batch, heads, queries, keys, width, values):
    """Every query meets every key in `width` numbers, and every value in `values`."""
    return sum(keys * width + keys * values for _ in range(batch * heads * queries))


def draw_tokens(rng: random.Random) -> dict[str, Any]:
    heads = rng.choice((1, 2, 3))
    return {
        "batch": small(rng, 3),
        "tokens": small(rng),
        "heads": heads,
        "width": 2 * heads * rng.randint(1, 3),
    }


def self_attention_macs(batch, tokens, heads, width):
    """Four linear layers of width x width for each token, then scores and their sums, per head width / heads wide."""
    linear = batch * tokens * 4 * width * width
    return linear + batch * heads * tokens * tokens * 2 * (width // heads)


def draw_recurrent(rng: random.Random) -> dict[str, Any]:
    return {
        "steps": small(rng, 4),
        "batch": small(rng, 3),
        "into": small(rng),
        "hidden": small(rng),
        "layers": rng.randint(1, 2),
        "both_ways": rng.random() < 0.3,
    }


def recurrent_macs(gates: int) -> Callable[..., int]:
    def macs(steps, batch, into, hidden, layers, both_ways):
        """Each gate of each hidden number reads the layer's input and the hidden numbers of the step before."""
        ways, total, width = (2 if both_ways else 1), 0, into
        for _ in range(layers):
            total += ways * steps * batch * gates * hidden * (width + hidden)
            width = ways * hidden
        return total

    return macs


class FirstResult(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.layer(*inputs)[0]


def recurrent(layer: type[nn.Module], gates: int) -> Kind:
    def build(dtype, steps, batch, into, hidden, layers, both_ways):
        return FirstResult(layer(into, hidden, layers, bidirectional=both_ways, dtype=dtype))

    return Kind(
        draw_recurrent,
        lambda steps, batch, into, **_: [(steps, batch, into)],
        recurrent_macs(gates),
        build,
        (torch.float32, torch.float64),
    )


def weights(dtype: torch.dtype, *shapes: Shape) -> list[Tensor]:
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


def summed(*axes: int) -> int:
    """Products for one result where these axes are summed: of axes of one number there is nothing to sum, and an outer
    product is elementwise, as PyTorch computes it.
    """
    return prod(axes) if prod(axes) > 1 else 0


def sizes_of(*names: str, most: int = 7) -> Callable[[random.Random], dict[str, Any]]:
    return lambda rng: {name: small(rng, most) for name in names}


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, dtype: torch.dtype):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


ALL = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
WHOLE = (torch.int64, torch.int32)
REAL = (torch.float32, torch.float64)
MATRICES = sizes_of("rows", "inner", "columns")
BATCHES = sizes_of("batch", "rows", "inner", "columns")


def free(draw, inputs, function, dtypes=REAL) -> Kind:
    """Operators without products."""
    return Kind(draw, inputs, lambda **_: 0, calls(function), dtypes)


def image_inputs(batch, channels, height, width):
    return [(batch, channels, height, width)]


IMAGES = sizes_of("batch", "channels", "height", "width")

KINDS: dict[str, Kind] = {
    "mm": Kind(
        MATRICES,
        lambda rows, inner, columns: [(rows, inner), (inner, columns)],
        lambda rows, inner, columns: sum(inner for _ in range(rows) for _ in range(columns)),
        calls(torch.mm),
        (*ALL, *WHOLE),
    ),
    "addmm": Kind(
        MATRICES,
        lambda rows, inner, columns: [(rows, columns), (rows, inner), (inner, columns)],
        lambda rows, inner, columns: sum(inner for _ in range(rows * columns)),
        calls(torch.addmm),
        ALL,
    ),
    "bmm": Kind(
        BATCHES,
        lambda batch, rows, inner, columns: [(batch, rows, inner), (batch, inner, columns)],
        lambda batch, rows, inner, columns: sum(inner * rows * columns for _ in range(batch)),
        calls(torch.bmm),
        (*ALL, *WHOLE),
    ),
    "baddbmm": Kind(
        BATCHES,
        lambda batch, rows, inner, columns: [
            (batch, rows, columns),
            (batch, rows, inner),
            (batch, inner, columns),
        ],
        lambda batch, rows, inner, columns: sum(inner * rows * columns for _ in range(batch)),
        calls(torch.baddbmm),
        ALL,
    ),
    "matmul, broadcast": Kind(
        sizes_of("outer", "batch", "rows", "inner", "columns", most=5),
        lambda outer, batch, rows, inner, columns: [(outer, 1, rows, inner), (batch, inner, columns)],
        lambda outer, batch, rows, inner, columns: sum(rows * inner * columns for _ in range(outer * batch)),
        calls(torch.matmul),
        ALL,
    ),
    "mv": Kind(
        sizes_of("rows", "inner"),
        lambda rows, inner: [(rows, inner), (inner,)],
        lambda rows, inner: sum(inner for _ in range(rows)),
        calls(torch.mv),
        ALL,
    ),
    "dot": Kind(
        sizes_of("inner", most=40),
        lambda inner: [(inner,), (inner,)],
        lambda inner: inner,
        calls(torch.dot),
        ALL,
    ),
    "einsum": Kind(
        sizes_of("batch", "a", "b", "c", "d", most=5),
        lambda batch, a, b, c, d: [(batch, a, b, c), (batch, d, c, b)],
        # Summed over b and c for each of batch, a, d.
        lambda batch, a, b, c, d: summed(b, c) * batch * a * d,
        calls(lambda x, y: torch.einsum("nabc,ndcb->nad", x, y)),
        ALL,
    ),
    # Of one number a result, or one number summed, PyTorch takes products and a sum or a matrix product, by the layout.
    "tensordot": Kind(
        lambda rng: {"a": 1 + small(rng, 6), "b": 1 + small(rng, 6), "c": small(rng, 7), "d": small(rng, 7)},
        lambda a, b, c, d: [(a, b, c), (b, c, d)],
        lambda a, b, c, d: summed(b, c) * a * d,
        calls(lambda x, y: torch.tensordot(x, y, 2)),
        ALL,
    ),
    "linear": Kind(
        sizes_of("batch", "tokens", "into", "out"),
        lambda batch, tokens, into, out: [(batch, tokens, into)],
        lambda batch, tokens, into, out: sum(into * out for _ in range(batch * tokens)),
        lambda dtype, into, out, **_: nn.Linear(into, out, dtype=dtype),
        ALL,
    ),
    "shared layer": Kind(
        sizes_of("rows", "width"),
        lambda rows, width: [(rows, width)],
        lambda rows, width: 2 * sum(width * width for _ in range(rows)),
        lambda dtype, width, **_: nn.Sequential(*[nn.Linear(width, width, dtype=dtype)] * 2),
    ),
    "checkpointed layer": Kind(
        sizes_of("rows", "into", "out"),
        lambda rows, into, out: [(rows, into)],
        lambda rows, into, out: rows * into * out,
        lambda dtype, into, out, **_: Calls(
            lambda x, w: checkpoint(F.linear, x, w, use_reentrant=False), *weights(dtype, (out, into))
        ),
    ),
    "bilinear": Kind(
        sizes_of("rows", "a", "b", "out"),
        lambda rows, a, b, out: [(rows, a), (rows, b)],
        # x1' W, of a x b numbers for each result, and then with x2.
        lambda rows, a, b, out: sum(a * b + b for _ in range(rows * out)),
        lambda dtype, a, b, out, **_: nn.Bilinear(a, b, out, dtype=dtype),
    ),
    "conv1d": convolution(1),
    "conv2d": convolution(2),
    "conv3d": convolution(3),
    "complex conv1d": convolution(1, dtypes=(torch.complex64,)),
    "complex conv2d": convolution(2, dtypes=(torch.complex64,)),
    "conv of integers": Kind(
        draw_convolution(2),
        lambda batch, groups, into, out, kernel, image, **_: [
            (batch, into, *image),
            (out, into // groups, *kernel),
        ],
        convolution_macs,
        lambda dtype, groups, stride, padding, dilation, **_: Calls(
            lambda x, w: F.conv2d(x, w, None, stride, padding, dilation, groups)
        ),
        (torch.int64,),
    ),
    "transposed conv1d": convolution(1, transposed=True),
    "transposed conv2d": convolution(2, transposed=True),
    "transposed conv3d": convolution(3, transposed=True),
    "attention": Kind(
        draw_attention,
        lambda batch, heads, queries, keys, width, values: [
            (batch, heads, queries, width),
            (batch, heads, keys, width),
            (batch, heads, keys, values),
        ],
        attention_macs,
        calls(F.scaled_dot_product_attention),
    ),
    "attention, causal": Kind(
        draw_attention,
        lambda batch, heads, queries, keys, width, values: [
            (batch, heads, queries, width),
            (batch, heads, queries, width),
            (batch, heads, queries, values),
        ],
        # A mask takes nothing off: every query and every key.
        lambda keys, **sizes: attention_macs(keys=sizes["queries"], **sizes),
        calls(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    ),
    "attention, grouped": Kind(
        lambda rng: {**draw_attention(rng), "share": rng.randint(1, 3)},
        lambda batch, heads, queries, keys, width, values, share: [
            (batch, heads * share, queries, width),
            (batch, heads, keys, width),
            (batch, heads, keys, values),
        ],
        lambda heads, share, **sizes: attention_macs(heads=heads * share, **sizes),
        calls(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)),
    ),
    "attention, written out": Kind(
        draw_attention,
        lambda batch, heads, queries, keys, width, values: [
            (batch, heads, queries, width),
            (batch, heads, keys, width),
            (batch, heads, keys, values),
        ],
        attention_macs,
        calls(lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) @ v),
    ),
    "self-attention": Kind(
        draw_tokens,
        lambda batch, tokens, width, **_: [(batch, tokens, width)],
        self_attention_macs,
        lambda dtype, width, heads, **_: SelfAttention(width, heads, dtype),
        REAL,
    ),
    "encoder layer": Kind(
        lambda rng: {**draw_tokens(rng), "wide": small(rng)},
        lambda batch, tokens, width, **_: [(batch, tokens, width)],
        lambda wide, **sizes: (
            self_attention_macs(**sizes) + sizes["batch"] * sizes["tokens"] * 2 * sizes["width"] * wide
        ),
        lambda dtype, width, heads, wide, **_: nn.TransformerEncoderLayer(
            width, heads, wide, batch_first=True, dtype=dtype
        ),
        REAL,
    ),
    "rnn": recurrent(nn.RNN, 1),
    "gru": recurrent(nn.GRU, 3),
    "lstm": recurrent(nn.LSTM, 4),
    "lstm cell": Kind(
        sizes_of("batch", "into", "hidden"),
        lambda batch, into, hidden: [(batch, into)],
        lambda batch, into, hidden: batch * 4 * hidden * (into + hidden),
        lambda dtype, into, hidden, **_: FirstResult(nn.LSTMCell(into, hidden, dtype=dtype)),
        REAL,
    ),
    "distances": Kind(
        lambda rng: {
            "batch": small(rng, 3),
            "rows": rng.randint(1, 60),
            "others": rng.randint(1, 60),
            "width": 4,
        },
        lambda batch, rows, others, width: [(batch, rows, width), (batch, others, width)],
        # By a product from 26 rows on, by differences below.
        lambda batch, rows, others, width: batch * rows * others * width if max(rows, others) > 25 else 0,
        calls(torch.cdist),
        REAL,
    ),
    "grid": Kind(
        sizes_of("batch", "height", "width"),
        lambda batch, height, width: [(batch, 2, 3)],
        # (x, y, 1) of each place by a matrix of 2 x 3.
        lambda batch, height, width: sum(2 * 3 for _ in range(batch * height * width)),
        lambda dtype, batch, height, width: Calls(
            lambda t: F.affine_grid(t, [batch, 1, height, width], False)
        ),
        REAL,
    ),
    "norm": free(
        IMAGES, image_inputs, lambda x: F.layer_norm(x, x.shape[-2:]), (torch.float32, torch.bfloat16)
    ),
    "activation": free(IMAGES, image_inputs, lambda x: F.gelu(x).softmax(-1) + x.sigmoid() * x),
    "outer": free(sizes_of("a", "b"), lambda a, b: [(a,), (b,)], torch.outer, ALL),
    "fft": free(IMAGES, image_inputs, lambda x: torch.fft.fft2(x).abs()),
    "pooling": free(
        IMAGES, image_inputs, lambda x: F.avg_pool2d(F.interpolate(x, scale_factor=2.0, mode="bilinear"), 2)
    ),
    "sorting": free(
        IMAGES, image_inputs, lambda x: x.sort(-1).values.cumsum(-1).roll(1, -1), (*REAL, *WHOLE)
    ),
}
