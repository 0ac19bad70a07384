"""What a network, its training or its sampling would refuse when it is built or first run, found in the numbers alone.

Each check finds (key, text) pairs; a text names the values and a way out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from swinmr_profiling.configs.declared_inputs import InputsError, read_inputs
from swinmr_profiling.configs.errors import Problems

if TYPE_CHECKING:
    from swinmr_profiling.configs.schema import ExperimentConfig
    from swinmr_profiling.configs.sections.denoiser import DiTDenoiserModelConfig, UNetDenoiserModelConfig
    from swinmr_profiling.configs.sections.model import SwinIRModelConfig

# The tables of sine and cosine positions hold both for each of the two axes.
POSITION_PARTS = 4


def nearest_multiples(value: int, factor: int) -> list[int]:
    """The positive multiples of `factor` next below and next above `value`, which is none itself."""
    below = value // factor * factor
    return [n for n in (below, below + factor) if n > 0]


def nearest_divisors(value: int, near: int) -> list[int]:
    """The divisors of `value` next below and next above `near`, where they exist."""
    divisors = [n for n in range(1, value + 1) if value % n == 0]
    return [n for n in divisors if n < near][-1:] + [n for n in divisors if n > near][:1]


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def swinir_problems(model: SwinIRModelConfig) -> Problems:
    """Everything that keeps a SwinIR network with these numbers from being built and run."""
    if len(model.depths) != len(model.num_heads):
        counts = f"{len(model.num_heads)} entries, but depths has {len(model.depths)}"
        yield "num_heads", f"{counts}: both need one entry per block group"
    for heads in sorted(set(model.num_heads)):
        # A width must suit the other block groups' heads too.
        yield from _head_problems(model.embed_dim, heads, math.lcm(*model.num_heads))
    yield from _window_problems(model)
    yield from _upscale_problems(model)
    yield from _channel_problems(model)
    yield from _mlp_problems(model)


def _head_problems(dim: int, heads: int, multiple: int) -> Problems:
    if dim % heads:
        dims = _either(nearest_multiples(dim, multiple))
        way_out = f"{dims}, or num_heads {_either(nearest_divisors(dim, heads))}"
        yield "embed_dim", f"embed_dim {dim} is not divisible by {heads} heads: {way_out}"


def _mlp_problems(model: SwinIRModelConfig | DiTDenoiserModelConfig) -> Problems:
    dim = model.embed_dim
    if int(dim * model.mlp_ratio) < 1:
        text = f"mlp_ratio {model.mlp_ratio:g} leaves the MLP of embed_dim {dim} without channels"
        yield "mlp_ratio", f"{text}: at least {math.ceil(100 / dim) / 100:g}"


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
            yield "out_chans", f"{sizes}: {why}, so out_chans must be in_chans, or in_chans 1"
        elif model.upsampler is not None and model.in_chans == 3:
            why = "SwinIR adds an RGB mean to the output of a 3-channel network"
            yield "out_chans", f"{sizes}: {why}, so out_chans must be 3 or null"
    if model.resi_connection == "3conv" and model.embed_dim < 4:
        text = f"3conv has embed_dim // 4 channels inside, none for embed_dim {model.embed_dim}"
        yield "resi_connection", f"{text}: embed_dim at least 4, or 1conv"


def side_problem(key: str, hw: tuple[int, int], multiple: int, why: str) -> Problems:
    """Why an image of these sides cannot be taken, with the sides that could; nothing where it can."""
    for side in hw:
        if side % multiple:
            way_out = f"for {side} take {_either(nearest_multiples(side, multiple))}"
            yield key, f"{hw[0]} x {hw[1]} is not divisible by {multiple} ({why}): {way_out}"
            return


def unet_problems(model: UNetDenoiserModelConfig) -> Problems:
    """Everything that keeps a U-Net with these numbers from being built and run."""
    levels = len(model.channel_multipliers)
    why = f"{levels} levels, each halves the sides"
    if bad_side := list(side_problem("img_size", model.image_hw, model.side_multiple, why)):
        yield from bad_side
        return
    resolutions = [min(model.image_hw) // 2**level for level in range(levels)]
    for resolution in model.attention_resolutions:
        if resolution not in resolutions:
            known = ", ".join(map(str, resolutions))
            yield (
                "attention_resolutions",
                f"no level has features of {resolution} pixels: the levels have {known}",
            )
    channels = [model.base_channels * multiplier for multiplier in model.channel_multipliers]
    for count in dict.fromkeys((model.base_channels, *channels)):
        if count % model.num_groups:
            way_out = _either(nearest_divisors(count, model.num_groups))
            text = f"a level has {count} channels, which {model.num_groups} groups do not divide"
            yield "num_groups", f"{text}: num_groups {way_out}"
            break
    for resolution, count in zip(resolutions, channels, strict=True):
        # The middle of the network attends whatever the levels do.
        attends = resolution in model.attention_resolutions or resolution == resolutions[-1]
        if attends and count % model.head_channels:
            way_out = _either(nearest_divisors(count, model.head_channels))
            text = f"attention at {resolution} pixels has {count} channels, not divisible by heads of"
            yield "head_channels", f"{text} {model.head_channels}: {way_out}"
            break


def dit_problems(model: DiTDenoiserModelConfig) -> Problems:
    """Everything that keeps a transformer with these numbers from being built and run."""
    yield from side_problem("img_size", model.image_hw, model.patch_size, "model.patch_size")
    dim, heads = model.embed_dim, model.num_heads
    multiple = math.lcm(heads, POSITION_PARTS)
    yield from _head_problems(dim, heads, multiple)
    if dim % heads == 0 and dim % POSITION_PARTS:
        way_out = _either(nearest_multiples(dim, multiple))
        yield "embed_dim", f"embed_dim {dim} is not divisible by 4, sines and cosines of 2 axes: {way_out}"
    yield from _mlp_problems(model)


def diffusers_problems(model: Any) -> Problems:
    """What contradicts itself in the inputs of a diffusers class."""
    try:
        read_inputs(model.inputs)
    except InputsError as error:
        yield f"inputs.{error.path}", error.text
    for name in model.int64_inputs:
        if name not in model.inputs:
            known = ", ".join(model.inputs) or "none"
            yield "int64_inputs", f"{name} is not among inputs (there: {known}): give its shape there"
    channels = model.config.get("in_channels")
    if model.conditional and (not isinstance(channels, int) or channels % 2):
        text = "half of the channels is the zero-filled image, so config.in_channels must be given and even"
        yield "conditional", f"{text}: set it, or conditional false"


def patch_problems(config: ExperimentConfig) -> Problems:
    """What of the training patch does not suit a SwinIR or a denoiser."""
    model, patch, image = config.model, config.training_patch_hw, config.image_hw
    if not config.data.use_patches or config.data.patch_size is None or patch is None:
        return
    window, named = getattr(model, "window_size", 1), f"patch_size {patch[0]} x {patch[1]}"
    if image is not None and (patch[0] > image[0] or patch[1] > image[1]):
        text = f"{named} is larger than the image ({image[0]} x {image[1]}, model.img_size)"
        yield "data.patch_size", f"{text}: at most that, or use_patches false"
    elif window > min(patch):
        text = f"{named} is smaller than the window (model.window_size {window})"
        yield "data.patch_size", f"{text}: at least {window}"
    elif getattr(model, "ape", False) and image is not None and patch != image:
        text = f"{named} does not suit model.ape, which ties the network to {image[0]} x {image[1]}"
        yield "data.patch_size", f"{text}: set use_patches or ape to false"
    else:
        why = (
            "model.patch_size" if model.net_type == "dit_denoiser" else "levels of model.channel_multipliers"
        )
        yield from side_problem("data.patch_size", patch, getattr(model, "side_multiple", 1), why)


def denoising_problems(config: ExperimentConfig) -> Problems:
    """What of a denoiser's training and sampling does not suit it."""
    sampling, diffusion = config.evaluation.sampling, config.training.diffusion
    kind = config.training.loss.type
    if kind in ("multi_component", "cross_entropy"):
        text = f'a denoiser is trained on what it predicts, not with "{kind}": "auto", "mse" or "l1"'
        yield "training.loss.type", text
    if diffusion.condition_dropout and not config.denoiser.conditional:
        text = "model.conditional is false, so there is no condition to leave out: 0, or conditional true"
        yield "training.diffusion.condition_dropout", text
    metric = config.training.early_stopping.metric
    if metric in ("val_psnr", "val_ssim", "val_nmse") and not sampling.validation_steps:
        text = f'{metric} needs images, and evaluation.sampling.validation_steps is 0: set it, or "val_loss" or "auto"'
        yield "training.early_stopping.metric", text
    for key in ("sampling_steps", "validation_steps"):
        steps = getattr(sampling, key)
        if steps > diffusion.timesteps:
            text = f"{steps} steps, but training.diffusion.timesteps is {diffusion.timesteps}: at most that"
            yield f"evaluation.sampling.{key}", text
    if sampling.guidance != 1 and not config.denoiser.conditional:
        text = "guidance needs a condition, and model.conditional is false: guidance 1, or conditional true"
        yield "evaluation.sampling.guidance", text
    elif sampling.guidance != 1 and not diffusion.condition_dropout:
        text = "guidance needs training without condition too: training.diffusion.condition_dropout above 0 (0.1)"
        yield "evaluation.sampling.guidance", f"{text}, or guidance 1"
    if sampling.clip and config.data.normalisation not in ("min_max", "max"):
        text = f'data.normalisation "{config.data.normalisation}" goes beyond the range that is clipped to: clip false'
        yield "evaluation.sampling.clip", text
