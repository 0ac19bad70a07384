"""From how far a network takes what it makes of a pixel, found by running it, and what that says of tiles.

Tiles begin at multiples of the network's period, so that they see windows and strides as the whole image does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.training.tiling.strips import LEAST_LENGTH, SAME, NotProbedError, StripProbe
from swinmr_profiling.training.tiling.tile_grid import Reach, rounded_up

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

    with ExitStack() as stack, torch.no_grad():
        for part in module.modules():
            stack.callback(part.register_forward_hook(look).remove)
        stack.callback(module.train, module.training)
        module.eval()(*inputs)
    return {factor for factor in found if factor <= MOST}


# Beyond so many pixels nobody overlaps tiles; a strip of twice as many is what the search costs at most.
DEFAULT_LIMIT = 256
# Times the period that the parts of a network tell, where it is a longer one.
FACTORS = (1, 2, 3, 4, 8)
LONGEST_PERIOD = 128
# Sides of a strip, in multiples of the shortest.
SIDES = (1, 2, 4, 8)

# finite: tiles that overlap enough are the whole image. wide: so would they be, if the network did not look farther
# than `limit`. whole: a module takes something from all of the image. position: what is made of a pixel depends on
# where it lies. unknown: the network does not run on images of another size.
Kind = Literal["finite", "wide", "whole", "position", "unknown"]


@dataclass(frozen=True)
class Support:
    """What tiles of a network's image would be.

    Attributes:
        period: tiles begin at its multiples.
        scale: output side over input side; None where it did not run.
        rows, columns: how far pixels outside of a tile reach into it, along each axis; None unless `kind` is "finite".
        reason: in words, why there is no exact tile; names the module where it is one. "" where there is.
        limit: pixels up to which was looked.
        multiples_only: of a finite network: its images differ from tiles where a side is no multiple of `period`, in
            words; "" where such images are tiles as well, or are none that it takes.
    """

    kind: Kind
    period: int
    scale: int | None
    rows: Reach | None
    columns: Reach | None
    reason: str
    limit: int
    multiples_only: str = ""

    def odd_side(self, image_hw: tuple[int, int]) -> str:
        """Why tiles are not equal to a whole image of this size, though they are of others; "" where they are."""
        if (
            self.kind != "finite"
            or not self.multiples_only
            or not any(side % self.period for side in image_hw)
        ):
            return ""
        return f"an image of {image_hw[0]} x {image_hw[1]} is no multiple of {self.period}, and {self.multiples_only}"

    @property
    def least_tile(self) -> int | None:
        """Side of the smallest tile that leaves a period between its overlaps; None where none does."""
        if self.rows is None or self.columns is None:
            return None
        return rounded_up(max(self.rows.both, self.columns.both), self.period) + self.period


def find_support(built: BuiltModel, *, limit: int = DEFAULT_LIMIT) -> Support:
    """Runs the network of a config on strips (`strips.py`). Its weights are read only; the global RNG is left alone.

    Well below a second of a CPU for a small network, about a minute for one as large as SwinMR.
    """
    with torch.random.fork_rng(devices=()):
        found = _support(built, torch.float64, limit)
        if found.kind == "unknown" and any(word in found.reason for word in ("dtype", "Double", "Float")):
            again = _support(built, torch.float32, limit)
            return found if again.kind == "unknown" else again
    return found


def _support(built: BuiltModel, dtype: torch.dtype, limit: int) -> Support:
    base = structural_period(built)
    if built.image_hw is None or len(built.inputs["inference"][0].shape) != 3:
        return Support("unknown", base, None, None, None, "its input is no image", limit)
    try:
        probe = StripProbe(built, dtype)
    except NotProbedError as error:
        return Support("unknown", base, None, None, None, str(error), limit)
    refusal, differs = "", None
    for period in [factor * base for factor in FACTORS if factor == 1 or factor * base <= LONGEST_PERIOD]:
        try:
            found = _at_period(probe, period, limit)
        except NotProbedError as error:
            refusal = refusal or str(error)
            continue
        if found.kind != "position":
            return found
        differs = differs or found
    if differs is not None:
        return differs
    return Support("unknown", base, None, None, None, f"it takes no image of another size: {refusal}", limit)


def _at_period(probe: StripProbe, period: int, limit: int) -> Support:
    """On the narrowest strips that the network takes. Raises NotProbedError where it takes none of this period."""
    refusal = NotProbedError("it runs on no strip")
    for factor in SIDES:
        try:
            return _on_strips(probe, period, factor, limit)
        except NotProbedError as error:
            refusal = error
    raise refusal


def _on_strips(probe: StripProbe, period: int, factor: int, limit: int) -> Support:
    """Raises NotProbedError."""
    reaches: list[Reach] = []
    length = max(LEAST_LENGTH, 4 * period)
    reader = probe.computed_places(length, period, factor)
    if reader is not None:
        reason = f"{reader} reads pixels at places that it computes from the image, as far as these lead"
        return Support("wide", period, probe.scale, None, None, reason, limit)
    for axis in (0, 1):
        found, length = _reach(probe, axis, period, factor, limit, length)
        if isinstance(found, tuple):
            kind, reason = found
            return Support(kind, period, probe.scale, None, None, reason, limit)
        reaches.append(found)
    for axis, reach in enumerate(reaches):
        gap = probe.difference(axis, period, reach, factor)
        if not gap <= SAME[probe.dtype]:  # nor where it is NaN
            share = f"by {gap:.1e} of the largest value"
            reason = f"what it makes of a pixel depends on where in the image that lies ({share})"
            return Support("position", period, probe.scale, None, None, reason, limit)
    odd = _at_other_sizes(probe, period, factor, reaches)
    return Support("finite", period, probe.scale, reaches[0], reaches[1], "", limit, odd)


def _at_other_sizes(probe: StripProbe, period: int, factor: int, reaches: list[Reach]) -> str:
    """What differs in images whose sides are no multiples of the period; "" where nothing does.

    Such an image may be padded on both sides, which moves all windows, or its small maps enlarged by no whole factor.
    """
    for axis, reach in enumerate(reaches):
        for rest in sorted({1, period // 2, period - 1} - {0, period}):
            try:
                gap = probe.difference(axis, period, reach, factor, rest)
            except NotProbedError:  # nor will it take such a whole image
                continue
            if not gap <= SAME[probe.dtype]:
                return f"there what it makes of a tile differs by {gap:.1e} of the largest value"
    return ""


def _reach(
    probe: StripProbe, axis: int, period: int, factor: int, limit: int, length: int
) -> tuple[Reach | tuple[Literal["wide", "whole"], str], int]:
    """Along one axis, on strips that grow until both ends stay known, else why they do not; and the last strip."""
    longest = rounded_up(2 * (limit + 2 * period), period)
    length = min(rounded_up(length, period), longest)
    while True:
        spread = probe.spread(axis, length, period, factor)
        reach = spread.reach
        if reach is not None and max(reach.before, reach.after) <= limit:
            return reach, length
        if reach is not None or (length == longest and spread.culprit is None):
            return ("wide", f"it looks farther than {limit} pixels"), length
        if length == longest:
            reason = f"{spread.culprit} takes something from all of an image of {length} pixels"
            return ("whole", reason), length
        # What a module makes of a short image may be a matter of its kernels' sizes.
        length = longest if spread.culprit is not None else min(rounded_up(2 * length, period), longest)
