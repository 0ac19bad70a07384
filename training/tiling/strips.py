"""A network on long, narrow images: how far unknown pixels spread, and whether it sees tiles as it sees the whole.

What spreads is NaN: through every sum and product, also with a weight of 0. So what stays finite was computed from
nothing that is NaN, whatever the weights are. Convolutions that compute blocks of pixels at once would spread it too
far: in float64 PyTorch has none on a CPU, and in float32, for networks that insist on it, they are switched off.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.tiling.computed_places import reads_computed_places
from swinmr_profiling.training.tiling.tile_grid import Reach, rounded_up

# Added to every parameter: those that begin as zeros (the last layer of a branch, a table of positions) would hide what
# a trained network does. Relative to nothing: such tables are of about this size.
NOISE = 0.02
LEAST_SIDE = 16
LEAST_LENGTH = 128
# A module that makes every pixel depend on all of the image was given at least so many that did not.
KNOWN_SHARE = 0.5
# Of the largest value: the order of sums.
SAME = {torch.float64: 1e-9, torch.float32: 1e-4}


class NotProbedError(ValueError):
    """A network that does not run on such images; the network's own words in one line."""


@dataclass(frozen=True)
class Spread:
    """How far NaN came on a strip; None: to the strip's ends. culprit: the module that spread it everywhere."""

    reach: Reach | None
    culprit: str | None


class StripProbe:
    """A copy of a network with all weights away from zero, on the CPU, and strips for it. axis: 0 down, 1 across."""

    def __init__(self, built: BuiltModel, dtype: torch.dtype = torch.float64) -> None:
        """dtype: float64, or float32. Raises NotProbedError for a network that cannot be copied."""
        self.dtype = dtype
        try:
            module = copy.deepcopy(built.module).to("cpu", dtype).eval()
        except Exception as error:  # a network may hold anything
            raise NotProbedError(f"it cannot be copied ({_words(error)})") from error
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.is_floating_point():
                    noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                    parameter.add_(noise, alpha=NOISE)
        self.module, self._built = module, built
        self.scale: int | None = None

    def strip(
        self, axis: int, length: int, period: int, factor: int = 1, seed: int = 0
    ) -> tuple[Tensor, ...]:
        """Inputs of one image: `length` along the axis, at least two windows across."""
        side = rounded_up(max(2 * period, LEAST_SIDE), period) * factor
        hw = (length, side) if axis == 0 else (side, length)
        return self._built.at_size(hw).example_inputs(1, "cpu", self.dtype, seed=seed)

    def computed_places(self, length: int, period: int, factor: int = 1) -> str | None:
        """The module that reads pixels where the image sends it, if one does. Raises NotProbedError."""
        images = [self.strip(0, length, period, factor, seed) for seed in (0, 1)]
        return reads_computed_places(self.module, images, self.run)

    def run(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The result (1, C, scale H, scale W). Raises NotProbedError."""
        try:
            with _plain_kernels(self.dtype):
                output = first_tensor(without_gradients(self.module, lambda: self.module(*inputs))).detach()
        except Exception as error:  # whatever a network raises at a size that it does not take
            raise NotProbedError(_words(error)) from error
        given = inputs[0].shape[-2:]
        if output.ndim != 4 or len(output) != 1:
            raise NotProbedError(f"it makes no image but {tuple(output.shape)} of {tuple(inputs[0].shape)}")
        scale = max(output.shape[-1] // given[1], 1)
        if tuple(output.shape[-2:]) != (scale * given[0], scale * given[1]):
            raise NotProbedError(f"it makes {tuple(output.shape[-2:])} of {tuple(given)}: no whole multiple")
        self.scale = scale
        return output

    def spread(self, axis: int, length: int, period: int, factor: int = 1) -> Spread:
        """From one period of NaN in the middle of a strip. Raises NotProbedError."""
        inputs = tuple(x.clone() for x in self.strip(axis, length, period, factor))
        begin = length // 2 // period * period
        end = begin + period
        for tensor in inputs:
            if tensor.shape[-2:] == inputs[0].shape[-2:]:
                tensor.narrow(tensor.ndim - 2 + axis, begin, period).fill_(torch.nan)
        with _culprit_of(self.module) as found:
            try:
                output = self.run(inputs)
            except NotProbedError:
                if not found:
                    raise
                return Spread(None, found[0])
        assert self.scale is not None
        other = tuple(dim for dim in range(4) if dim != 2 + axis)
        touched = output.isnan().any(dim=other).nonzero().flatten()
        if not len(touched):
            return Spread(Reach(0, 0), None)
        first, last = int(touched[0]), int(touched[-1]) + 1
        if first == 0 or last == output.shape[2 + axis]:
            return Spread(None, None)
        # A pixel of the input that is touched in part is touched.
        lowest, highest = first // self.scale, -(-last // self.scale)
        return Spread(Reach(before=max(0, highest - end), after=max(0, begin - lowest)), None)

    def difference(self, axis: int, period: int, reach: Reach, factor: int = 1, rest: int = 0) -> float:
        """Largest difference between tiles and the whole strip where they should be equal, over the largest value.

        Two tiles: at the beginning, and one period further, at the end. rest: pixels by which the strip, and with it
        the last tile, is longer than a multiple of the period. Raises NotProbedError.
        """
        tile = rounded_up(max(reach.both, period, LEAST_LENGTH), period) + period
        inputs = self.strip(axis, tile + period + rest, period, factor)
        whole = self.run(inputs)
        scale = self.scale or 1
        largest = 0.0
        for begin, end, low, high in (
            (0, tile, 0, tile - reach.after),
            (period, tile + period + rest, reach.before, tile + rest),
        ):
            made = self.run(tuple(self._cut(x, inputs[0], axis, begin, end - begin) for x in inputs))
            wanted = whole.narrow(2 + axis, (begin + low) * scale, (high - low) * scale)
            gap = (made.narrow(2 + axis, low * scale, (high - low) * scale) - wanted).abs().max()
            largest = max(largest, float(gap))
        top = float(whole.abs().max())
        return largest / top if top else largest

    @staticmethod
    def _cut(tensor: Tensor, image: Tensor, axis: int, begin: int, length: int) -> Tensor:
        if tensor.shape[-2:] != image.shape[-2:]:
            return tensor
        return tensor.narrow(tensor.ndim - 2 + axis, begin, length).contiguous()


def _plain_kernels(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Without kernels that compute blocks of pixels at once."""
    if dtype == torch.float64:
        return nullcontext()
    stack = ExitStack()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what else the switch could do on other machines
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
    stack.enter_context(torch.backends.nnpack.flags(enabled=False))
    return stack


class _AllUnknownError(Exception):
    """Nothing that comes after tells more."""


@contextmanager
def _culprit_of(module: nn.Module) -> Iterator[list[str]]:
    """Ends a forward at the first module that made nothing known of much that was, at once; and names it.

    Innermost: forwards end from inside. A module whose parts lose what is known little by little is none: a longer
    strip would show how far that goes.
    """
    found: list[str] = []
    # Of each module that is running: the least share that one of its parts still knew.
    running: list[float] = []

    def begin(part: nn.Module, args: Any) -> None:
        running.append(1.0)

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(part: nn.Module, args: Any, output: Any) -> None:
            within = running.pop()
            given, made = _known_share(args), _known_share(output)
            if running:
                running[-1] = min(running[-1], within, made or 1.0)
            if made == 0 and given is not None and min(given, within) >= KNOWN_SHARE:
                found.append(f"{name or 'the network itself'} ({type(part).__name__})")
                raise _AllUnknownError

        return look

    with ExitStack() as stack:
        for name, part in module.named_modules():
            stack.callback(part.register_forward_pre_hook(begin).remove)
            stack.callback(part.register_forward_hook(hook(name)).remove)
        yield found


def _known_share(value: Any) -> float | None:
    """Share of the first tensor's numbers that are no NaN; None without one."""
    if isinstance(value, Tensor):
        if not value.is_floating_point() or not value.numel():
            return None
        return 1 - float(value.isnan().double().mean())
    for item in value if isinstance(value, (tuple, list)) else ():
        share = _known_share(item)
        if share is not None:
            return share
    return None


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
