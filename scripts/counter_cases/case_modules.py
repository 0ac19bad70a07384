"""What the cases are made of: the record of a case, small modules, short forms for one-line cases."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Case:
    """build() -> (module in evaluation mode, inputs); macs is the exact figure."""

    name: str
    macs: int
    build: Callable[[], tuple[nn.Module, tuple]]


class Call(nn.Module):
    """A function as a module, with parameters of its own if it needs weights.

    A function of torch is given by name and looked up when it is called, as in anybody's code: several
    counters work by replacing functions of torch, and would miss a reference taken before.
    """

    def __init__(self, function: Callable | str, **weights: torch.Tensor):
        super().__init__()
        self.function = function
        self.names = tuple(weights)
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, *inputs):
        function = self.function
        if isinstance(function, str):
            function = functools.reduce(getattr, function.split(".")[1:], torch)
        return function(*inputs, *(getattr(self, name) for name in self.names))


class Twice(nn.Module):
    """One layer called twice, registered under two names."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.first = layer
        self.second = layer

    def forward(self, x):
        return self.second(self.first(x))


class Recursive(nn.Module):
    """A module that calls itself, ``depth`` levels deep."""

    def __init__(self, layer: nn.Module, depth: int):
        super().__init__()
        self.layer, self.depth = layer, depth

    def forward(self, x, depth: int | None = None):
        depth = self.depth if depth is None else depth
        return x if depth == 0 else self(self.layer(x), depth - 1)


class LinearSubclass(nn.Linear):
    """As LoRA and quantization libraries derive their layers."""


class SquareFunction(torch.autograd.Function):
    """A custom autograd function with a product in it."""

    @staticmethod
    def forward(ctx, x):
        return x @ x

    @staticmethod
    def backward(ctx, grad):
        return grad


def quantized_linear() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 8))
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


# They make a function of a function.
inference_mode = torch.inference_mode()
autocast = torch.autocast("cpu", torch.bfloat16)


class PackedLSTM(nn.Module):
    """An LSTM over three sequences of 5, 3 and 1 steps, packed."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 1]), batch_first=True)
        return self.lstm(packed)[0].data


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def case(name: str, macs: int, module: Callable[[], nn.Module], *inputs: Callable[[], torch.Tensor]) -> Case:
    return Case(name, macs, lambda: (module().eval(), tuple(i() for i in inputs)))


def call(
    name: str,
    macs: int,
    function: Callable | str,
    *shapes: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    **weights: tuple[int, ...],
) -> Case:
    """A case of a bare function: random inputs of these shapes and this dtype, then parameters of these shapes."""
    return Case(
        name,
        macs,
        lambda: (
            Call(function, **{k: randn(*s) for k, s in weights.items()}).eval(),
            tuple(randn(*s, dtype=dtype) for s in shapes),
        ),
    )


def layer(name: str, macs: int, module: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Case:
    return Case(name, macs, lambda: (module().eval(), tuple(randn(*s) for s in shapes)))
