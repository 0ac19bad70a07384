"""From the pixels that are asked for to those computed and their latent: the pipelines round in four ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from swinmr_profiling.configs.error_words import first_line
from swinmr_profiling.profiler.pipelines.defined.definition import PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.libraries import require_library
from swinmr_profiling.profiler.pipelines.errors import PipelineError

# Side of the latent that is decoded to see by how much a VAE enlarges: any will do.
TRIAL_LATENT_SIDE = 8


@dataclass(frozen=True)
class Geometry:
    """Sides in pixels and latent pixels. `note` says in words what was rounded, None if nothing was."""

    height: int
    width: int
    computed_height: int
    computed_width: int
    latent_height: int
    latent_width: int
    vae_scale_factor: int
    note: str | None = None


def latent_channels(vae: nn.Module) -> int:
    """Channels of the latent that a VAE decodes."""
    for key in ("latent_channels", "z_dim"):
        channels = getattr(vae.config, key, None)
        if isinstance(channels, int):
            return channels
    raise PipelineError(f"{type(vae).__name__}: neither latent_channels nor z_dim in its config")


def latent_shape(vae: nn.Module, batch: int, height: int, width: int) -> tuple[int, ...]:
    """Shape of the latent; video VAEs have an axis of frames, of which an image has one."""
    channels = latent_channels(vae)
    is_video = any(isinstance(module, nn.Conv3d) for module in vae.modules())
    return (batch, channels, 1, height, width) if is_video else (batch, channels, height, width)


def decode(vae: Any, latent: torch.Tensor) -> Any:
    """Decodes as the pipelines do: a vector-quantised VAE is given features, not codes."""
    if type(vae).__name__ == "VQModel":
        return vae.decode(latent, force_not_quantize=True)
    return vae.decode(latent)


def vae_scale_factor(vae: nn.Module) -> int:
    """Pixels per latent pixel and side, found by decoding one on the meta device."""
    dtype = next(vae.parameters()).dtype
    side = TRIAL_LATENT_SIDE
    try:
        with torch.no_grad():
            image = decode(vae, torch.empty(latent_shape(vae, 1, side, side), dtype=dtype, device="meta"))
    except Exception as error:
        raise PipelineError(f"{type(vae).__name__} does not decode a latent: {first_line(error)}") from error
    return image.sample.shape[-1] // side


def resolve_geometry(
    definition: PipelineDefinition, height: int, width: int, factor: int, patch: int, sample_size: int | None
) -> Geometry:
    """The sides a pipeline computes at.

    Args:
        factor: the VAE's pixels per latent pixel.
        patch: latent pixels per token and side of the denoiser, packing included.
        sample_size: of the denoiser's config, in latent pixels: which table of resolutions it was trained on.

    Raises PipelineError for sides the pipeline refuses, with the nearest ones it takes.
    """
    note = None
    if definition.rounds_up_to_multiple_of:
        multiple = definition.rounds_up_to_multiple_of
        computed = (-(-height // multiple) * multiple, -(-width // multiple) * multiple)
        if computed != (height, width):
            note = f"{definition.pipeline_class} rounds {width} x {height} up to {computed[1]} x {computed[0]} px"
    else:
        multiple = factor if definition.resolution_binning else factor * patch
        _refuse_other_multiples(height, width, multiple)
        computed = (height, width)
        if definition.resolution_binning:
            computed = binned(height, width, factor * (sample_size or 0))
            if computed != (height, width):
                note = (
                    f"{definition.pipeline_class} computes {width} x {height} at {computed[1]} x {computed[0]} px, "
                    "the nearest resolution it was trained on, and resizes the image"
                )
    inner_height, inner_width = computed
    latent_hw = (inner_height // factor, inner_width // factor)
    return Geometry(height, width, inner_height, inner_width, *latent_hw, factor, note)


def _refuse_other_multiples(height: int, width: int, multiple: int) -> None:
    for name, side in (("height", height), ("width", width)):
        if side % multiple:
            lower, upper = side // multiple * multiple, -(-side // multiple) * multiple
            use = f"{lower} or {upper}" if lower else f"{upper}"
            raise PipelineError(f"{name} {side}: this pipeline takes multiples of {multiple} px: use {use}")


def binned(height: int, width: int, table_side: int) -> tuple[int, int]:
    """The nearest (height, width) by aspect ratio in diffusers' table for checkpoints of `table_side` pixels.

    Where diffusers has no table for that side, its pipelines refuse; so does this, with PipelineError.
    """
    name = f"ASPECT_RATIO_{table_side}_BIN"
    for module in (
        "pixart_alpha.pipeline_pixart_alpha",
        "pixart_alpha.pipeline_pixart_sigma",
        "sana.pipeline_sana",
    ):
        table = getattr(require_library(f"diffusers.pipelines.{module}"), name, None)
        if table is not None:
            processor = require_library("diffusers.image_processor").PixArtImageProcessor
            return processor.classify_height_width_bin(height, width, ratios=table)
    raise PipelineError(f"no table of resolutions for checkpoints of {table_side} px in this diffusers")
