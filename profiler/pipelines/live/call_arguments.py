"""What a pipeline's call is given: of the settings what it takes, else its own defaults."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from swinmr_profiling.profiler.pipelines.defined.definition import (
    PipelineDefinition,
    list_pipelines,
    load_pipeline,
)
from swinmr_profiling.profiler.pipelines.defined.libraries import require_library
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.loaded_pipeline import GenerationSettings

# Arguments that are an image, or a list of them, by the names that diffusers' pipelines have for them.
IMAGE_ARGUMENTS = ("image", "images", "mask_image", "control_image", "video", "example_image")
# A checkpoint that is run in few steps says so nowhere but in its card: FluxPipeline's own default is 28, of dev.
STEP_DISTILLED = "flux1-schnell"


def call_arguments(pipe: Any, settings: GenerationSettings, seed: int) -> dict[str, Any]:
    """Keyword arguments of one call; a generator on the CPU gives the same noise everywhere.

    Raises PipelineError, before anything is computed, where the pipeline needs an image and none is given, or takes
    none and one is given.
    """
    accepted = inspect.signature(type(pipe).__call__).parameters
    steps, scale = settings.num_inference_steps, settings.guidance_scale
    if (known := checkpoint_defaults(pipe)) is not None:
        steps = known.default_steps if steps is None else steps
        scale = known.default_guidance_scale if scale is None else scale
    wanted = {
        "prompt": settings.prompt,
        "negative_prompt": settings.negative_prompt,
        "height": settings.height,
        "width": settings.width,
        "num_inference_steps": steps,
        "guidance_scale": scale,
        "generator": torch.Generator("cpu").manual_seed(seed),
    }
    arguments = {name: value for name, value in wanted.items() if name in accepted and value is not None}
    if "output_type" in accepted:
        arguments["output_type"] = "pil"
    name = type(pipe).__name__
    if settings.image is not None:
        if "image" not in accepted:
            raise PipelineError(f"{name} takes no image: leave --image away")
        arguments["image"] = _opened(settings.image)
    needed = [
        argument
        for argument, parameter in accepted.items()
        if argument != "self"
        and argument not in arguments
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    missing = [argument for argument in needed if argument in IMAGE_ARGUMENTS]
    # Img2img pipelines have a default of None for the image, and raise deep inside without one.
    is_for_images = any(word in name for word in ("Img2Img", "ImageTo", "Inpaint", "InstructPix2Pix"))
    if missing or (is_for_images and "image" in accepted and "image" not in arguments):
        raise PipelineError(f"{name} starts from an image: give one with --image")
    if needed:
        raise PipelineError(f"{name} cannot be called from here: it needs {', '.join(needed)}")
    return arguments


def _opened(file: str) -> Any:
    image = require_library("PIL.Image")
    try:
        return image.open(file).convert("RGB")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise PipelineError(f"image {file}: cannot be read: {reason}") from error


def given(pipe: Any, arguments: dict[str, Any], name: str, otherwise: Any) -> Any:
    """An argument of a call as the pipeline gets it: the one given, or the default of its signature."""
    parameter = inspect.signature(type(pipe).__call__).parameters.get(name)
    value = arguments.get(name, None if parameter is None else parameter.default)
    return otherwise if value is None or value is inspect.Parameter.empty else value


def checkpoint_defaults(pipe: Any) -> PipelineDefinition | None:
    """The definition whose denoiser the pipeline has: its steps and guidance are the checkpoint's own.

    None where there is none; the defaults of the pipeline's call stand then.
    """
    denoiser = getattr(pipe, "transformer", None) or getattr(pipe, "unet", None)
    config = dict(getattr(denoiser, "config", None) or {})
    kind = type(pipe).__name__
    for name in list_pipelines():
        definition = load_pipeline(name)
        if definition.pipeline_class != kind:
            continue
        own = definition.denoiser.config
        is_distilled = name == STEP_DISTILLED and config.get("guidance_embeds") is False
        if is_distilled or all(_plain(config.get(key)) == _plain(value) for key, value in own.items()):
            return definition
    return None


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
