"""Modules that read pixels at places which they compute from the image: deformable convolutions, warping, DySample.

How far these look no weights tell and no strip shows: it is as far as the numbers of an image send them. And NaN is no
place: grid_sample takes it for the image's edge, and torchvision's deformable convolution reads memory that is not its
own. So they are found before anything unknown is fed, by two images for which the places differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# Operator -> which of its arguments holds the places.
PLACES = {
    "aten::grid_sampler": 1,  # in inference mode, whole
    "aten::grid_sampler_2d": 1,
    "aten::grid_sampler_3d": 1,
    "aten::_grid_sampler_2d_cpu_fallback": 1,
    "torchvision::deform_conv2d": 2,
}


class _Places(TorchDispatchMode):
    """The places that one forward reads, in order, each with the module that was running."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.read: list[tuple[str, Tensor]] = []
        self._running: list[str] = []
        self._module = module

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = PLACES.get(func._schema.name)
        if place is not None and len(args) > place:
            self.read.append((self._running[-1] if self._running else "", args[place].detach().clone()))
        return func(*args, **(kwargs or {}))

    def watch(self, run: Callable[[], object]) -> list[tuple[str, Tensor]]:
        with ExitStack() as stack:
            for name, part in self._module.named_modules():
                label = f"{name or 'the network itself'} ({type(part).__name__})"
                stack.callback(part.register_forward_pre_hook(self._begin(label)).remove)
                stack.callback(part.register_forward_hook(self._end).remove)
            stack.enter_context(self)
            run()
        return self.read

    def _begin(self, label: str) -> Callable[[nn.Module, Any], None]:
        return lambda part, args: self._running.append(label)

    def _end(self, part: nn.Module, args: Any, output: Any) -> None:
        self._running.pop()


def reads_computed_places(
    module: nn.Module, images: Sequence[tuple[Tensor, ...]], run: Callable[[tuple[Tensor, ...]], object]
) -> str | None:
    """The first module that reads other places of one image than of another; None where none does.

    images: the inputs of two forwards, of the same shapes. run: one forward. Raises what `run` raises.
    """
    first, second = (_Places(module).watch(partial(run, given)) for given in images)
    for (name, here), (_, there) in zip(first, second, strict=False):
        if here.shape != there.shape or not torch.equal(here, there):
            return name
    return first[len(second)][0] if len(first) > len(second) else None
