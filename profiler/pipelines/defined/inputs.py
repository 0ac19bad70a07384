"""What a component is called with in a pipeline: tensors without data, as `models/from_diffusers` derives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from swinmr_profiling.configs.declared_inputs import Declared, DeclaredConstant, DeclaredTensor
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.from_diffusers.argument_makers import TIME_STEPS
from swinmr_profiling.models.from_diffusers.denoiser import denoiser_of
from swinmr_profiling.models.from_diffusers.derived_inputs import derived_inputs
from swinmr_profiling.models.from_diffusers.latents import CallSizes, has_packed_latents
from swinmr_profiling.profiler.pipelines.errors import PipelineError

# What a denoiser is handed: tensors, groups of them, numbers, or nothing.
Argument = Any
MASKS = ("encoder_attention_mask", "encoder_mask")


@dataclass(frozen=True)
class DenoiserCall:
    """One call. Sides in latent pixels (before any packing), `image_*` in pixels.

    `real_tokens` of the context are not padding (None: all), for networks that work on those alone.
    `mask_device` is "cpu" for networks that cut the context to its real length, for which they read the mask.
    """

    batch: int
    latent_height: int
    latent_width: int
    context_tokens: int
    image_height: int
    image_width: int
    dtype: torch.dtype = torch.bfloat16
    mask_device: str = "meta"
    real_tokens: int | None = None


def is_packed(module: nn.Module) -> bool:
    """Whether the denoiser takes 2 x 2 latent pixels as one token (FLUX, Qwen-Image)."""
    return has_packed_latents(denoiser_of(module))


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
