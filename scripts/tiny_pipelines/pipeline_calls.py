"""The components of a diffusers pipeline class, tiny, and the arguments of one call, by its signatures."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from swinmr_profiling.scripts.tiny_pipelines.pipeline_components import (
    OPTIONAL,
    NotConstructibleError,
    classes_of,
    component,
)
from swinmr_profiling.scripts.tiny_pipelines.pipeline_exceptions import (
    BEFORE,
    CALLS,
    FAMILIES,
    FRAMES,
    LEAVE,
    OWN,
    SIDE,
    WANTED,
    image,
    mask,
)

__all__ = ["BEFORE", "call_of", "components_of"]

STEPS = 2


def components_of(kind: type) -> dict[str, Any]:
    """Every component of a pipeline class, tiny. Raises NotConstructibleError with the first that cannot be made."""
    made: dict[str, Any] = {}
    name = kind.__name__
    for argument, parameter in inspect.signature(kind).parameters.items():
        if argument == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        chosen = OWN.get(name, {}).get(argument, _family(name, argument))
        if callable(chosen):
            made[argument] = chosen()
        elif chosen is None and argument in OWN.get(name, {}):
            made[argument] = None
        elif argument == "requires_safety_checker":
            made[argument] = False
        elif argument in OPTIONAL and argument not in WANTED.get(name, ()):
            if parameter.default is parameter.empty:
                made[argument] = None
        elif parameter.default is not parameter.empty and not _is_network(parameter):
            continue
        else:
            made[argument] = component(argument, parameter.annotation, chosen or {})
    if name.endswith("ControlNetXSPipeline"):
        made["controlnet"] = type(made["controlnet"]).from_unet(
            made["unet"], block_out_channels=(4, 8), num_attention_heads=2,
            conditioning_embedding_out_channels=(4, 4, 8, 8),
        )  # fmt: skip
    return made


def _is_network(parameter: inspect.Parameter) -> bool:
    import diffusers
    import transformers

    return any(
        isinstance(getattr(library, one, None), type)
        for one in classes_of(parameter.annotation)
        for library in (diffusers, transformers)
        if one not in ("Optional", "Union")
    )


def _family(name: str, argument: str) -> dict[str, Any] | None:
    for pattern, changes in FAMILIES:
        if pattern in name and argument in changes:
            return changes[argument]
    return None


# Argument of a call -> what it gets where the pipeline asks for it.
GIVEN: dict[str, Any] = {
    "prompt": lambda: "a cat",
    "image": image,
    "images": image,
    "mask_image": mask,
    "control_image": image,
    "control_mask": mask,
    "masked_image": image,
    "video": lambda: [image()] * FRAMES,
    "conditioning_frames": lambda: [image()] * FRAMES,
    "height": lambda: SIDE,
    "width": lambda: SIDE,
    "num_frames": lambda: FRAMES,
    "video_length": lambda: 2,
    "num_inference_steps": lambda: STEPS,
    "max_sequence_length": lambda: 16,
    "class_labels": lambda: [1],
    "source_prompt": lambda: "a dog",
    "control_mode": lambda: 0,
    "generator": lambda: torch.Generator("cpu").manual_seed(0),
    "strength": lambda: 0.75,
    "use_resolution_binning": lambda: False,
}
ALWAYS = (
    "prompt", "height", "width", "num_inference_steps", "max_sequence_length", "num_frames", "generator", "strength",
    "use_resolution_binning",
)  # fmt: skip


def call_of(pipe: Any) -> dict[str, Any]:
    """Arguments of one call: what the signature asks for, and small numbers where it lets us choose."""
    name = type(pipe).__name__
    own = CALLS.get(name, {})
    arguments: dict[str, Any] = {}
    for argument, parameter in inspect.signature(type(pipe).__call__).parameters.items():
        if argument == "self":
            continue
        if argument in own:
            if own[argument] is not LEAVE:
                arguments[argument] = own[argument]() if callable(own[argument]) else own[argument]
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            if argument not in GIVEN:
                raise NotConstructibleError(f"nobody here knows what its argument {argument} is")
            arguments[argument] = GIVEN[argument]()
        elif argument in ALWAYS or (argument in GIVEN and _needs(name, argument)):
            arguments[argument] = GIVEN[argument]()
        elif argument == "output_type" and parameter.default == "pil":
            arguments[argument] = "np"
    return arguments


# Words of a pipeline's name -> arguments that its kind of task needs, though the signature has a default for them.
NEEDS = {
    "Img2Img": ("image",),
    "Image2": ("image",),
    "ImageTo": ("image",),
    "Inpaint": ("image", "mask_image"),
    "ControlNetInpaint": ("control_image", "control_mask"),
    "Union": ("control_mode",),
    "Fill": ("image", "mask_image"),
    "ControlNet": ("image", "control_image"),
    "Controlnet": ("image",),
    "Control": ("control_image",),
    "Edit": ("image",),
    "Upscale": ("image",),
    "SuperResolution": ("image",),
    "Pix2Pix": ("image",),
    "Depth2Img": ("image",),
    "Variation": ("image",),
    "Adapter": ("image",),
    "VideoToVideo": ("video",),
    "VideoToWorld": ("video",),
    "Kontext": ("image",),
    "I2V": ("image",),
    "I2I": ("image",),
}


def _needs(name: str, argument: str) -> bool:
    return any(word in name and argument in arguments for word, arguments in NEEDS.items())
