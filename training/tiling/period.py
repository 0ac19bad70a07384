"""The period of a network: tiles that begin at its multiples see windows and strides as the whole image does."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.models.inputs import BuiltModel

# Attributes by which networks of windows keep their side.
WINDOW_NAMES = ("window_size", "win_size", "window_sizes", "split_size")
MOST = 512


def structural_period(built: BuiltModel) -> int:
    """Least common multiple of the windows that modules name and of how much smaller their results are.

    A first guess from the network's parts; `support.py` looks whether it is right.
    """
    return math.lcm(1, *_windows(built.module), *_strides(built))


def _windows(module: nn.Module) -> set[int]:
    found: set[int] = set()
    for part in module.modules():
        for name in WINDOW_NAMES:
            found.update(_whole_numbers(getattr(part, name, None)))
    return {side for side in found if 1 <= side <= MOST}


def _whole_numbers(value: Any) -> Iterable[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in _whole_numbers(item)]
    return []


def _strides(built: BuiltModel) -> set[int]:
    """How many times smaller feature maps are than the image, by a forward; without data where that is possible."""
    try:
        return _observed(copy.deepcopy(built.module).to("meta"), built.example_inputs(1, "meta"))
    except Exception:  # whatever a network raises that asks its tensors for values
        pass
    try:
        return _observed(built.module, built.example_inputs(1, which="cross_check"))
    except Exception:  # it does not run here: what runs it will tell why
        return set()


def _observed(module: nn.Module, inputs: tuple[Tensor, ...]) -> set[int]:
    height, width = inputs[0].shape[-2:]
    found: set[int] = set()

    def look(part: nn.Module, args: Any, output: Any) -> None:
        if not (isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[-2:]) > 1):
            return
        down, across = (whole // side for whole, side in zip((height, width), output.shape[-2:], strict=True))
        if down == across > 1 and (output.shape[-2] * down, output.shape[-1] * across) == (height, width):
            found.add(down)

    handles = [part.register_forward_hook(look) for part in module.modules()]
    was_training = module.training
    try:
        with torch.no_grad():
            module.eval()(*inputs)
    finally:
        module.train(was_training)
        for handle in handles:
            handle.remove()
    return {factor for factor in found if factor <= MOST}
