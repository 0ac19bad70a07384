"""Random networks of the operators of second_counter.py, with MACs that it derives."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from tests.second_counter import KINDS, Description, Operator, Shape


@dataclass(frozen=True)
class Node(Description):
    """An operator with what happens to its inputs on their way: a layout for each, and the mode it runs in."""

    operator: Operator
    layouts: tuple[str, ...]
    mode: str


@dataclass(frozen=True)
class Graph(Description):
    """Nodes and graphs within it, in the order they run; each takes its inputs from what came before."""

    parts: tuple[Node | Graph, ...]

    def macs(self) -> int:
        return sum(part.macs() if isinstance(part, Graph) else part.operator.macs() for part in self.parts)

    def kinds(self) -> set[str]:
        kinds: set[str] = set()
        for part in self.parts:
            kinds |= part.kinds() if isinstance(part, Graph) else {part.operator.kind}
        return kinds


LAYOUTS = ("plain", "plain", "transposed", "expanded", "every second", "channels last")


MODES = ("plain", "plain", "plain", "no_grad", "inference", "grad")


def draw_operator(rng: random.Random, kind: str | None = None) -> Operator:
    kind = rng.choice(list(KINDS)) if kind is None else kind
    return Operator(kind, KINDS[kind].draw(rng), rng.choice(KINDS[kind].dtypes))


def draw_graph(rng: random.Random, depth: int = 3) -> Graph:
    parts: list[Node | Graph] = []
    for _ in range(rng.randint(1, 4)):
        if depth and rng.random() < 0.4:
            parts.append(draw_graph(rng, depth - 1))
        else:
            operator = draw_operator(rng)
            layouts = tuple(rng.choice(LAYOUTS) for _ in operator.inputs())
            parts.append(Node(operator, layouts, rng.choice(MODES)))
    return Graph(tuple(parts))


def made_from(source: Tensor, shape: Shape, dtype: torch.dtype, layout: str) -> Tensor:
    """A tensor of a shape, type and layout out of another's numbers, by copies alone."""
    source = source.real if source.is_complex() and not dtype.is_complex else source
    flat = source.reshape(-1).to(dtype)
    if layout == "expanded" and shape:
        return flat[:1].expand(prod(shape)).reshape(shape)[:1].expand(shape)
    extra = 2 if layout == "every second" else 1
    repeats = -(-prod(shape) * extra // max(flat.numel(), 1))
    numbers = flat.repeat(repeats)[: prod(shape) * extra]
    if layout == "every second":
        return numbers[::2].view(shape)
    if layout == "transposed" and len(shape) > 1:
        return numbers.view(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
    tensor = numbers.view(shape)
    if layout == "channels last" and len(shape) == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


class Runs(nn.Module):
    """A node or a graph as a module. forward: the tensors so far -> those and its own."""

    def __init__(self, part: Node | Graph, rng: random.Random):
        super().__init__()
        self.part = part
        if isinstance(part, Graph):
            self.children_in_order = nn.ModuleList(Runs(inner, rng) for inner in part.parts)
        else:
            operator = part.operator
            self.operator = KINDS[operator.kind].build(dtype=operator.dtype, **operator.sizes)
            self.sources = [rng.random() for _ in part.layouts]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if isinstance(self.part, Graph):
            for child in self.children_in_order:
                tensors = child(*tensors)
            return tensors
        node = self.part
        modes = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}
        if node.mode == "plain":
            return (*tensors, self._run(tensors))
        with modes[node.mode]():
            result = self._run(tensors)
        # A tensor made in inference mode must not be kept for a gradient.
        return (*tensors, result.clone() if node.mode == "inference" else result)

    def _run(self, tensors: tuple[Tensor, ...]) -> Tensor:
        operator = self.part.operator
        inputs = [
            made_from(tensors[int(source * len(tensors))].detach(), shape, operator.dtype, layout)
            for source, shape, layout in zip(self.sources, operator.inputs(), self.part.layouts, strict=True)
        ]
        return self.operator(*inputs)
