"""What a denoiser, its training or its sampling would refuse, found in the numbers alone.

Each check finds (key, text) pairs; a text names the values and a way out.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

from swinmr_profiling.configs.declared_inputs import InputsError, read_inputs
from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.swinir_limits import nearest_divisors, nearest_multiples

if TYPE_CHECKING:
    from swinmr_profiling.configs.schema import ExperimentConfig
    from swinmr_profiling.configs.sections.denoiser import DiTDenoiserModelConfig, UNetDenoiserModelConfig

# The tables of sine and cosine positions hold both for each of the two axes.
POSITION_PARTS = 4


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def side_problem(hw: tuple[int, int], multiple: int, why: str) -> str | None:
    """Why an image of these sides cannot be taken, with the sides that could; None where it can."""
    for side in hw:
        if side % multiple:
            way_out = f"for {side} take {_either(nearest_multiples(side, multiple))}"
            return f"{hw[0]} x {hw[1]} is not divisible by {multiple} ({why}): {way_out}"
    return None


def unet_problems(model: UNetDenoiserModelConfig) -> Problems:
    """Everything that keeps a U-Net with these numbers from being built and run."""
    levels = len(model.channel_multipliers)
    bad_side = side_problem(model.image_hw, model.side_multiple, f"{levels} levels, each halves the sides")
    if bad_side is not None:
        yield ("img_size", bad_side)
        return
    resolutions = [min(model.image_hw) // 2**level for level in range(levels)]
    for resolution in model.attention_resolutions:
        if resolution not in resolutions:
            text = f"no level has features of {resolution} pixels: the levels have {', '.join(map(str, resolutions))}"
            yield ("attention_resolutions", text)
    channels = [model.base_channels * multiplier for multiplier in model.channel_multipliers]
    for count in dict.fromkeys((model.base_channels, *channels)):
        if count % model.num_groups:
            way_out = _either(nearest_divisors(count, model.num_groups))
            text = f"a level has {count} channels, which {model.num_groups} groups do not divide: num_groups {way_out}"
            yield ("num_groups", text)
            break
    for resolution, count in zip(resolutions, channels, strict=True):
        # The middle of the network attends whatever the levels do.
        attends = resolution in model.attention_resolutions or resolution == resolutions[-1]
        if attends and count % model.head_channels:
            way_out = _either(nearest_divisors(count, model.head_channels))
            text = f"attention at {resolution} pixels has {count} channels"
            heads = f"not divisible by heads of {model.head_channels}"
            yield ("head_channels", f"{text}, {heads}: {way_out}")
            break


def dit_problems(model: DiTDenoiserModelConfig) -> Problems:
    """Everything that keeps a transformer with these numbers from being built and run."""
    bad_side = side_problem(model.image_hw, model.patch_size, "model.patch_size")
    if bad_side is not None:
        yield ("img_size", bad_side)
    dim, heads = model.embed_dim, model.num_heads
    if dim % heads:
        multiple = math.lcm(heads, POSITION_PARTS)
        way_out = f"{_either(nearest_multiples(dim, multiple))}, or num_heads {_either(nearest_divisors(dim, heads))}"
        yield ("embed_dim", f"embed_dim {dim} is not divisible by {heads} heads: {way_out}")
    elif dim % POSITION_PARTS:
        way_out = _either(nearest_multiples(dim, math.lcm(heads, POSITION_PARTS)))
        yield ("embed_dim", f"embed_dim {dim} is not divisible by 4, sines and cosines of 2 axes: {way_out}")
    if int(dim * model.mlp_ratio) < 1:
        text = f"mlp_ratio {model.mlp_ratio:g} leaves the MLP of embed_dim {dim} without channels"
        yield ("mlp_ratio", f"{text}: at least {math.ceil(100 / dim) / 100:g}")


def diffusers_problems(model: Any) -> Problems:
    """What contradicts itself in the inputs of a diffusers class."""
    try:
        read_inputs(model.inputs)
    except InputsError as error:
        yield (f"inputs.{error.path}", error.text)
    for name in model.int64_inputs:
        if name not in model.inputs:
            known = ", ".join(model.inputs) or "none"
            yield ("int64_inputs", f"{name} is not among inputs (there: {known}): give its shape there")
    channels = model.config.get("in_channels")
    if model.conditional and (not isinstance(channels, int) or channels % 2):
        text = "half of the channels is the zero-filled image, so config.in_channels must be given and even"
        yield ("conditional", f"{text}: set it, or conditional false")


def experiment_problems(config: ExperimentConfig) -> Problems:
    """What of a denoiser's data, training and sampling does not suit it."""
    return chain(_patch_problems(config), _training_problems(config), _sampling_problems(config))


def _patch_problems(config: ExperimentConfig) -> Problems:
    model, data, patch = config.model, config.data, config.training_patch_hw
    if not data.use_patches or data.patch_size is None or patch is None:
        return
    image, multiple = config.image_hw, getattr(model, "side_multiple", 1)
    why = "model.patch_size" if model.net_type == "dit_denoiser" else "levels of model.channel_multipliers"
    if image is not None and (patch[0] > image[0] or patch[1] > image[1]):
        text = f"patch_size {patch[0]} x {patch[1]} is larger than the image ({image[0]} x {image[1]}, model.img_size)"
        yield "data.patch_size", f"{text}: at most that, or use_patches false"
    elif (bad_side := side_problem(patch, multiple, why)) is not None:
        yield "data.patch_size", bad_side


def _training_problems(config: ExperimentConfig) -> Problems:
    diffusion = config.training.diffusion
    kind = config.training.loss.type
    if kind in ("multi_component", "cross_entropy"):
        text = f'a denoiser is trained on what it predicts, not with "{kind}": "auto", "mse" or "l1"'
        yield ("training.loss.type", text)
    if diffusion.condition_dropout and not config.denoiser.conditional:
        text = "model.conditional is false, so there is no condition to leave out: 0, or conditional true"
        yield ("training.diffusion.condition_dropout", text)
    metric = config.training.early_stopping.metric
    if metric in ("val_psnr", "val_ssim", "val_nmse") and not config.evaluation.sampling.validation_steps:
        text = f'{metric} needs images, and evaluation.sampling.validation_steps is 0: set it, or "val_loss" or "auto"'
        yield ("training.early_stopping.metric", text)


def _sampling_problems(config: ExperimentConfig) -> Problems:
    sampling, diffusion = config.evaluation.sampling, config.training.diffusion
    for key in ("sampling_steps", "validation_steps"):
        if getattr(sampling, key) > diffusion.timesteps:
            text = (
                f"{getattr(sampling, key)} steps, but training.diffusion.timesteps is {diffusion.timesteps}"
            )
            yield (f"evaluation.sampling.{key}", f"{text}: at most that")
    if sampling.guidance != 1:
        if not config.denoiser.conditional:
            text = (
                "guidance needs a condition, and model.conditional is false: guidance 1, or conditional true"
            )
            yield ("evaluation.sampling.guidance", text)
        elif not diffusion.condition_dropout:
            text = (
                "guidance needs training without condition too: training.diffusion.condition_dropout above 0"
            )
            yield ("evaluation.sampling.guidance", f"{text} (0.1), or guidance 1")
    if sampling.clip and config.data.normalisation not in ("min_max", "max"):
        text = f'data.normalisation "{config.data.normalisation}" goes beyond the range that is clipped to: clip false'
        yield ("evaluation.sampling.clip", text)
