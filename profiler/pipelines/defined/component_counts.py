"""Counts of single components, each made once (pipelines share text encoders and VAEs), and what they are called with.

A denoiser's arguments are tensors without data, as `models/from_diffusers` derives them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import nn

from swinmr_profiling.configs.declared_inputs import Declared, DeclaredConstant, DeclaredTensor
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.from_diffusers.argument_makers import TIME_STEPS, derived_inputs
from swinmr_profiling.models.from_diffusers.denoiser import denoiser_of
from swinmr_profiling.models.from_diffusers.latents import CallSizes, has_packed_latents
from swinmr_profiling.profiler.pipelines.defined.components import build_on_meta
from swinmr_profiling.profiler.pipelines.defined.definition import Component
from swinmr_profiling.profiler.pipelines.defined.geometry import decode, latent_shape, vae_scale_factor
from swinmr_profiling.profiler.pipelines.defined.measure import MeasuredCall, measure_call
from swinmr_profiling.profiler.pipelines.errors import PipelineError

Answer = TypeVar("Answer")
# What a denoiser is handed: tensors, groups of them, numbers, or nothing.
Argument = Any
MASKS = ("encoder_attention_mask", "encoder_mask")


@dataclass(frozen=True)
class DenoiserCall:
    """One call. Sides in latent pixels, before any packing.

    `real_tokens` of the context are not padding (None: all), for networks that work on those alone.
    `mask_device` is "cpu" for networks that cut the context to its real length, for which they read the mask.
    """

    batch: int
    latent_height: int
    latent_width: int
    context_tokens: int
    dtype: torch.dtype = torch.bfloat16
    mask_device: str = "meta"
    real_tokens: int | None = None


def _once(method: Callable[..., Answer]) -> Callable[..., Answer]:
    """Of a method that is given a network: one that is given its component, and asks for the same but once."""

    @functools.wraps(method)
    def ask(self: ComponentCounts, component: Component, *what: Any, **options: Any) -> Answer:
        identity = json.dumps([component.class_path, component.config], sort_keys=True, default=str)
        key = (identity, method.__name__, what, *options.items())
        if key not in self._results:
            if identity not in self._modules:
                self._modules[identity] = self._build(component, self.dtype)
            self._results[key] = method(self, self._modules[identity], *what, **options)
        return self._results[key]

    return ask


class ComponentCounts:
    """Builds components on the meta device and counts single calls of them.

    Results are kept; networks only until `release`, since those of one pipeline are seldom those of the next.
    """

    def __init__(
        self,
        dtype: torch.dtype = torch.bfloat16,
        build: Callable[[Component, torch.dtype], nn.Module] = build_on_meta,
    ) -> None:
        self.dtype = dtype
        self._build = build
        self._results: dict[tuple, Any] = {}
        self._modules: dict[str, nn.Module] = {}

    def release(self) -> None:
        """Drops the networks."""
        self._modules.clear()

    @_once
    def denoiser(self, module: nn.Module, call: DenoiserCall, *, memory: bool) -> MeasuredCall:
        """One call of a denoiser or a prior; without `memory` in two thirds of the time."""

        def measure_with(mask_device: str) -> MeasuredCall:
            arguments = denoiser_arguments(module, replace(call, dtype=self.dtype, mask_device=mask_device))
            return measure_call(module, lambda network: network(**arguments), arguments, memory=memory)

        try:
            return measure_with("meta")
        except PipelineError:
            return measure_with("cpu")

    @_once
    def latent_patch(self, module: Any) -> int:
        """Latent pixels per token and side: 2 where the pipeline packs 2 x 2, else the network's own patches."""
        patch = getattr(module.config, "patch_size", None) or 1
        # Of networks for videos it has an axis of frames, too.
        return (
            2
            if has_packed_latents(denoiser_of(module))
            else int(patch[-1] if isinstance(patch, (list, tuple)) else patch)
        )

    @_once
    def vae_scale_factor(self, module: nn.Module) -> int:
        """Pixels per latent pixel and side."""
        return vae_scale_factor(module)

    @_once
    def decode(self, module: nn.Module, batch: int, latent_height: int, latent_width: int) -> MeasuredCall:
        """One `vae.decode` of a latent of so many latent pixels."""
        shape = latent_shape(module, batch, latent_height, latent_width)
        latent = torch.empty(shape, dtype=self.dtype, device="meta")
        return measure_call(module, lambda vae: decode(vae, latent), latent)

    @_once
    def encode(self, module: Any, batch: int, height: int, width: int) -> MeasuredCall:
        """One `vae.encode` of an image of so many pixels."""
        image = torch.empty(batch, 3, height, width, dtype=self.dtype, device="meta")
        return measure_call(module, lambda _: module.encode(image), image)

    @_once
    def text(self, module: nn.Module, batch: int, tokens: int) -> MeasuredCall:
        """One call of a text encoder with so many tokens."""
        arguments = text_arguments(module, batch, tokens)
        return measure_call(module, lambda network: network(**arguments), arguments)

    @_once
    def image(self, module: Any, batch: int) -> MeasuredCall:
        """One call of a vision network, or of a safety checker, with images of the size it was made for."""
        settings = getattr(module.config, "vision_config", module.config)
        shape = (batch, settings.num_channels, settings.image_size, settings.image_size)
        pixels = torch.empty(shape, dtype=self.dtype, device="meta")
        checks_safety = hasattr(module, "concept_embeds")
        return measure_call(
            module,
            lambda network: _check_safety(network, pixels) if checks_safety else network(pixels),
            pixels,
        )


def denoiser_arguments(module: nn.Module, call: DenoiserCall) -> dict[str, Argument]:
    """Keyword arguments of one denoiser call, on the meta device.

    Raises PipelineError for a required argument that is not known here.
    """
    sizes = CallSizes((call.latent_height, call.latent_width), call.context_tokens)
    try:
        declared = derived_inputs(denoiser_of(module), sizes)
    except ModelError as error:
        raise PipelineError(str(error)) from error
    return {name: _argument(name, value, call) for name, value in declared.items()}


def _argument(name: str, declared: Declared, call: DenoiserCall) -> Argument:
    if isinstance(declared, DeclaredTensor):
        return _mask(declared, call) if name in MASKS else _tensor(name, declared, call)
    if isinstance(declared, DeclaredConstant):
        return [declared.value] * call.batch if declared.per_sample else declared.value
    if isinstance(declared, dict):
        return {key: _argument(name, item, call) for key, item in declared.items()}
    return [_argument(name, item, call) for item in declared]


def _tensor(name: str, declared: DeclaredTensor, call: DenoiserCall) -> Argument:
    shape, axis = declared.shape, declared.batch_axis
    if axis is not None:
        shape = (*shape[:axis], call.batch * declared.rows_per_sample, *shape[axis:])
    # A pipeline's time steps are of its scheduler's table, in the denoiser's precision.
    is_number = declared.dtype == "float" or name in TIME_STEPS
    dtype = call.dtype if is_number else getattr(torch, declared.dtype)
    whole = torch.ones if dtype is torch.bool else torch.empty
    tensor = whole(shape, dtype=dtype, device="meta")
    return list(tensor.unbind(axis)) if declared.as_list and axis is not None else tensor


def _mask(declared: DeclaredTensor, call: DenoiserCall) -> torch.Tensor:
    dtype = getattr(torch, declared.dtype)
    mask = torch.ones(call.batch, *declared.shape, dtype=dtype, device=call.mask_device)
    if call.real_tokens is not None:
        mask[:, call.real_tokens :] = 0
    return mask


def text_arguments(module: nn.Module, batch: int, tokens: int) -> dict[str, torch.Tensor | bool]:
    """What a text encoder is called with.

    CLIP and T5 read a mask's values to choose a kernel, which meta tensors do not have, and run without; language
    models want one, and no cache of keys and values.
    """
    ids = torch.zeros(batch, tokens, dtype=torch.int64, device="meta")
    arguments: dict[str, torch.Tensor | bool] = {"input_ids": ids}
    config: Any = module.config
    settings = getattr(config, "text_config", config)
    if hasattr(settings, "num_key_value_heads"):
        mask = torch.ones(batch, tokens, dtype=torch.int64, device="meta")
        arguments |= {"attention_mask": mask, "use_cache": False}
    return arguments


def _check_safety(module: Any, pixels: torch.Tensor) -> None:
    """The products of StableDiffusionSafetyChecker's forward, which goes on with numbers that meta does not have."""
    embedding = module.visual_projection(module.vision_model(pixels)[1])
    for concepts in (module.special_care_embeds, module.concept_embeds):
        torch.mm(nn.functional.normalize(embedding), nn.functional.normalize(concepts).t())
