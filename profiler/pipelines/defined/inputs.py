"""What a component is called with: tensors without data, found from the network's own signature and config.

No list of models: a denoiser that diffusers calls with the arguments known here is costed, whatever its name.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from swinmr_profiling.profiler.pipelines.errors import PipelineError

# Config keys that hold the width of the prompt's embedding, the most specific first: SANA and PixArt have a
# cross_attention_dim too, behind a projection of the caption.
CONTEXT_WIDTH_KEYS = (
    "joint_attention_dim",
    "caption_channels",
    "cap_feat_dim",
    "text_embed_dim",
    "encoder_hid_dim",
    "cross_attention_dim",
)
# Side of the table of rotary angles that Lumina-Next's pipeline makes for every call.
LUMINA_ROTARY_SIDE = 384
# Original size, crop and target size of SDXL, or with an aesthetic score: numbers that are embedded one by one.
SDXL_TIME_IDS = 6

Conditions = dict[str, torch.Tensor | None]
# What a denoiser is handed: tensors, groups of them, sides of packed images (frames, height, width), or nothing.
Argument = torch.Tensor | Conditions | list[list[tuple[int, int, int]]] | None


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


def forward_parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
    """Named parameters of the network's forward."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(type(module).forward).parameters
    return {name: p for name, p in parameters.items() if name != "self" and p.kind not in kinds}


def context_width(config: Any) -> int:
    """Width of the prompt's embedding. Raises PipelineError where no known key holds it."""
    for key in CONTEXT_WIDTH_KEYS:
        width = getattr(config, key, None)
        if isinstance(width, (tuple, list)) and width:
            width = width[0]
        if isinstance(width, int):
            return width
    raise PipelineError(
        f"the denoiser's config has none of {', '.join(CONTEXT_WIDTH_KEYS)}: no context width"
    )


def is_packed(module: nn.Module) -> bool:
    """Whether the denoiser takes 2 x 2 latent pixels as one token (FLUX, Qwen-Image)."""
    return not {"img_ids", "img_shapes"}.isdisjoint(forward_parameters(module))


def denoiser_arguments(module: nn.Module, call: DenoiserCall) -> dict[str, Argument]:
    """Keyword arguments of one denoiser call, on the meta device.

    Raises PipelineError for a required argument that is not known here.
    """
    parameters = forward_parameters(module)
    if "proj_embedding" in parameters:
        return _prior_arguments(module.config, call)
    arguments: dict[str, Argument] = {}
    for name, parameter in parameters.items():
        maker = _MAKERS.get(name)
        value = maker(module, call) if maker else None
        if value is not None:
            arguments[name] = value
        elif parameter.default is inspect.Parameter.empty:
            if maker:
                arguments[name] = None
                continue
            raise PipelineError(
                f"{type(module).__name__} needs the argument {name!r}, and nothing here knows what goes into it"
            )
    return arguments


def _empty(call: DenoiserCall, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=call.dtype, device="meta")


def _settings(module: nn.Module) -> Any:
    """The config that diffusers made the network with."""
    return module.config


def _latents(module: nn.Module, call: DenoiserCall) -> torch.Tensor:
    channels = _settings(module).in_channels
    if is_packed(module):
        return _empty(call, call.batch, _packed_tokens(call), channels)
    return _empty(call, call.batch, channels, call.latent_height, call.latent_width)


def _packed_tokens(call: DenoiserCall) -> int:
    return (call.latent_height // 2) * (call.latent_width // 2)


def _context(module: nn.Module, call: DenoiserCall) -> torch.Tensor | None:
    if getattr(module.config, "encoder_hid_dim_type", None) in ("image_proj", "ip_image_proj"):
        return None  # conditioned by an image embedding alone
    return _empty(call, call.batch, call.context_tokens, context_width(module.config))


def _mask(module: nn.Module, call: DenoiserCall) -> torch.Tensor | None:
    if "down_block_additional_residuals" in forward_parameters(module):
        return None  # UNets of Stable Diffusion: their pipelines pass none
    mask = torch.ones(call.batch, call.context_tokens, dtype=torch.int64, device=call.mask_device)
    if call.real_tokens is not None:
        mask[:, call.real_tokens :] = 0
    return mask


def _guidance(module: nn.Module, call: DenoiserCall) -> torch.Tensor | None:
    return _empty(call, call.batch) if getattr(module.config, "guidance_embeds", False) else None


def _rotary_table(module: nn.Module, call: DenoiserCall) -> torch.Tensor | None:
    parameter = forward_parameters(module)["image_rotary_emb"]
    if parameter.default is not inspect.Parameter.empty:
        return None  # the network makes its own
    head = _settings(module).hidden_size // _settings(module).num_attention_heads
    shape = (LUMINA_ROTARY_SIDE, LUMINA_ROTARY_SIDE, head // 2)
    return torch.empty(shape, dtype=torch.complex64, device="meta")


def _added_conditions(module: nn.Module, call: DenoiserCall) -> Conditions | None:
    config = _settings(module)
    if getattr(config, "use_additional_conditions", None) is not None:
        # PixArt: resolution and aspect ratio are embedded where the checkpoint was trained with them.
        if config.use_additional_conditions:
            return {"resolution": _empty(call, call.batch, 2), "aspect_ratio": _empty(call, call.batch, 1)}
        return {"resolution": None, "aspect_ratio": None}
    kind = getattr(config, "addition_embed_type", None)
    if kind == "text_time":
        pooled = config.projection_class_embeddings_input_dim - SDXL_TIME_IDS * config.addition_time_embed_dim
        return {
            "text_embeds": _empty(call, call.batch, pooled),
            "time_ids": _empty(call, call.batch, SDXL_TIME_IDS),
        }
    if kind == "image":
        return {"image_embeds": _empty(call, call.batch, config.encoder_hid_dim)}
    if kind is not None:
        raise PipelineError(f"{type(module).__name__}: conditions of kind {kind!r} are not known here")
    return None


def _time_condition(module: nn.Module, call: DenoiserCall) -> torch.Tensor | None:
    width = getattr(module.config, "time_cond_proj_dim", None)
    return _empty(call, call.batch, width) if width else None


def _attention_options(module: nn.Module, call: DenoiserCall) -> Conditions | None:
    # Lumina-Next unpacks them without looking; its pipeline always passes some.
    return {} if "image_rotary_emb" in forward_parameters(module) else None


def _size(module: nn.Module, call: DenoiserCall) -> torch.Tensor:
    return _empty(call, call.batch, 2)


_MAKERS = {
    "sample": _latents,
    "hidden_states": _latents,
    "timestep": lambda module, call: _empty(call, call.batch),
    "timestep_cond": _time_condition,
    "encoder_hidden_states": _context,
    "encoder_attention_mask": _mask,
    "encoder_hidden_states_mask": lambda module, call: None,
    "encoder_mask": _mask,
    "pooled_projections": lambda m, call: _empty(call, call.batch, _settings(m).pooled_projection_dim),
    "guidance": _guidance,
    "img_ids": lambda module, call: _empty(call, _packed_tokens(call), 3),
    "txt_ids": lambda module, call: _empty(call, call.context_tokens, 3),
    "img_shapes": lambda m, call: [[(1, call.latent_height // 2, call.latent_width // 2)]] * call.batch,
    "image_rotary_emb": _rotary_table,
    "added_cond_kwargs": _added_conditions,
    "cross_attention_kwargs": _attention_options,
    "original_size": _size,
    "target_size": _size,
    "crop_coords": _size,
}


def _prior_arguments(config: Any, call: DenoiserCall) -> dict[str, Argument]:
    """A prior denoises one embedding vector, conditioned by the prompt's tokens and its pooled embedding."""
    width, tokens = config.embedding_dim, config.num_embeddings
    return {
        "hidden_states": _empty(call, call.batch, width),
        "timestep": _empty(call, call.batch),
        "proj_embedding": _empty(call, call.batch, width),
        "encoder_hidden_states": _empty(call, call.batch, tokens, width),
        "attention_mask": torch.ones(call.batch, tokens, dtype=torch.bool, device="meta"),
    }
