"""What the SwinIR network would refuse when it is built or first run, found in the numbers alone.

Each check finds (key, text) pairs; a text names the values and a way out.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from swinmr_profiling.configs.errors import Problems

if TYPE_CHECKING:
    from swinmr_profiling.configs.sections.model import SwinIRModelConfig


def swinir_problems(model: SwinIRModelConfig) -> Problems:
    """Everything that keeps a SwinIR network with these numbers from being built and run."""
    checks = (_group_problems, _window_problems, _upscale_problems, _channel_problems)
    return chain.from_iterable(check(model) for check in checks)


def nearest_multiples(value: int, factor: int) -> list[int]:
    """The positive multiples of `factor` next below and next above `value`, which is none itself."""
    below = value // factor * factor
    return [n for n in (below, below + factor) if n > 0]


def nearest_divisors(value: int, near: int) -> list[int]:
    """The divisors of `value` next below and next above `near`, where they exist."""
    divisors = [n for n in range(1, value + 1) if value % n == 0]
    return [n for n in divisors if n < near][-1:] + [n for n in divisors if n > near][:1]


def _group_problems(model: SwinIRModelConfig) -> Problems:
    if len(model.depths) != len(model.num_heads):
        counts = f"{len(model.num_heads)} entries, but depths has {len(model.depths)}"
        yield ("num_heads", f"{counts}: both need one entry per block group")
    dim = model.embed_dim
    for heads in sorted(set(model.num_heads)):
        if dim % heads:
            # A width must suit the other block groups' heads too.
            dims = _either(nearest_multiples(dim, math.lcm(*model.num_heads)))
            way_out = f"{dims}, or num_heads {_either(nearest_divisors(dim, heads))}"
            yield ("embed_dim", f"embed_dim {dim} is not divisible by {heads} heads: {way_out}")


def _window_problems(model: SwinIRModelConfig) -> Problems:
    height, width = model.image_hw
    window = model.window_size
    uneven = [side for side in dict.fromkeys((height, width)) if side % window]
    if window > min(height, width):
        text = f"window_size {window} is larger than the image (img_size {height} x {width})"
        yield "window_size", f"{text}: at most {min(height, width)}, or a larger img_size"
    elif model.ape and uneven:
        # Images are padded to whole windows, and the embedding has one entry for each pixel of img_size.
        sides = "; ".join(f"{_either(nearest_multiples(side, window))} for {side}" for side in uneven)
        text = f"img_size {height} x {width} is not a multiple of window_size {window}, which ape needs"
        yield "img_size", f"{text}: {sides}, or ape false"


def _upscale_problems(model: SwinIRModelConfig) -> Problems:
    scale, upsampler = model.upscale, model.upsampler
    if upsampler is None and scale != 1:
        way_out = "set upsampler to pixelshuffle, pixelshuffledirect or nearest+conv, or upscale to 1"
        yield "upscale", f"upscale {scale} needs an upsampler: {way_out}"
    # 1 is a power of two: pixelshuffle then only adds its convolutions.
    elif upsampler == "pixelshuffle" and scale != 3 and scale & (scale - 1):
        lower = 1 << (scale.bit_length() - 1)
        way_out = f"upscale {lower} or {2 * lower}, or upsampler pixelshuffledirect"
        yield "upscale", f"pixelshuffle enlarges by a power of two or by 3, not by {scale}: {way_out}"
    elif upsampler == "nearest+conv" and scale not in (2, 4, 8):
        way_out = "upscale 2, 4 or 8, or upsampler pixelshuffledirect"
        yield "upscale", f"nearest+conv enlarges by 2, 4 or 8, not by {scale}: {way_out}"


def _channel_problems(model: SwinIRModelConfig) -> Problems:
    if model.output_channels != model.in_chans:
        sizes = f"out_chans {model.output_channels} with in_chans {model.in_chans}"
        if model.upsampler is None and model.in_chans != 1:
            # x + conv_last(...): one channel broadcasts to many; other pairs fail, or silently give in_chans.
            why = "without an upsampler the output is added to the input"
            yield ("out_chans", f"{sizes}: {why}, so out_chans must be in_chans, or in_chans 1")
        elif model.upsampler is not None and model.in_chans == 3:
            why = "SwinIR adds an RGB mean to the output of a 3-channel network"
            yield ("out_chans", f"{sizes}: {why}, so out_chans must be 3 or null")
    dim = model.embed_dim
    if model.resi_connection == "3conv" and dim < 4:
        text = f"3conv has embed_dim // 4 channels inside, none for embed_dim {dim}"
        yield ("resi_connection", f"{text}: embed_dim at least 4, or 1conv")
    if int(dim * model.mlp_ratio) < 1:
        text = f"mlp_ratio {model.mlp_ratio:g} leaves the MLP of embed_dim {dim} without channels"
        yield ("mlp_ratio", f"{text}: at least {math.ceil(100 / dim) / 100:g}")


def _either(numbers: list[int]) -> str:
    return " or ".join(str(n) for n in numbers)
