"""What one call of a diffusers denoiser takes, found from its own signature and config, argument by argument.

No list of models: a denoiser that diffusers calls with the arguments known here is fed, whatever its name. The
pipelines' costs (`profiler/pipelines`) and networks of a config (`network.py`) are fed by the same rules.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

from swinmr_profiling.configs.declared_inputs import Declared, DeclaredConstant, DeclaredTensor
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.from_diffusers.denoiser import Denoiser, UnknownInputError, context_width
from swinmr_profiling.models.from_diffusers.latents import (
    CallSizes,
    axes,
    frames_of,
    image_positions,
    image_tokens,
    latents,
    positions,
    rope_positions,
    rotary_table,
    sound_rotary,
)  # fmt: skip

# Original size, crop and target size of SDXL, or with an aesthetic score: numbers that are embedded one by one.
SDXL_TIME_IDS = 6
HUNYUAN_META_SIZES, MICRO_CONDITIONS = 6, 5
# Of a second encoder, by class, and of SigLIP's image: as the pipelines have them.
SECOND_TEXT_TOKENS = {"HunyuanImageTransformer2DModel": 128, "HunyuanVideo15Transformer3DModel": 256}
SIGLIP_TOKENS = 729
# Cosmos' mask is of pixels, and its VAE halves sides three times.
COSMOS_VAE_FACTOR = 8
TIME_STEPS = ("timestep", "timesteps", "t", "timestep_ratio", "r_timestep")


def _numbers(*shape: int) -> DeclaredTensor:
    return DeclaredTensor(shape)


def _ones(*shape: int, dtype: str = "int64") -> DeclaredTensor:
    return DeclaredTensor(shape, dtype=dtype, value_range=(1, 1))


def _context(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    if denoiser.is_prior:
        return _numbers(denoiser.config.num_embeddings, denoiser.config.embedding_dim)
    if denoiser.setting("encoder_hid_dim_type") in ("image_proj", "ip_image_proj"):
        return None  # conditioned by an image embedding alone
    if "added_time_ids" in denoiser.parameters:
        return _numbers(1, context_width(denoiser.config))  # Stable Video Diffusion: one image embedding
    if denoiser.name == "UNetMotionModel":  # one for each frame
        width = context_width(denoiser.config)
        return DeclaredTensor((sizes.text_tokens, width), rows_per_sample=sizes.frames)
    if denoiser.name.startswith("Allegro"):
        return _numbers(1, sizes.text_tokens, context_width(denoiser.config))
    return _numbers(sizes.text_tokens, context_width(denoiser.config))


def _mask(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    if (
        "down_block_additional_residuals"
        in denoiser.parameters  # UNets of Stable Diffusion: pipelines pass none
        or denoiser.name.startswith("Latte")  # its pipeline cuts the prompt instead
        or "global_hidden_states"
        in denoiser.parameters  # Stable Audio: the embedding has zeros in place of a mask
    ):
        return None
    boolean = denoiser.name.startswith(("Mochi", "Kandinsky3"))
    return _ones(sizes.text_tokens, dtype="bool" if boolean else "int64")


def _attention_mask(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    if denoiser.is_prior:
        return _ones(denoiser.config.num_embeddings, dtype="bool")
    if denoiser.name.startswith("Chroma"):
        return _ones(sizes.text_tokens + image_tokens(denoiser, sizes), dtype="float")
    return None


def _guidance(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    return _numbers() if denoiser.setting("guidance_embeds") else None


def _added_conditions(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    config = denoiser.config
    if denoiser.setting("use_additional_conditions") is not None:
        # PixArt: resolution and aspect ratio are embedded where the checkpoint was trained with them.
        if config.use_additional_conditions:
            return {"resolution": _numbers(2), "aspect_ratio": _numbers(1)}
        return {"resolution": DeclaredConstant(None), "aspect_ratio": DeclaredConstant(None)}
    kind = denoiser.setting("addition_embed_type")
    if kind == "text_time":
        pooled = config.projection_class_embeddings_input_dim - SDXL_TIME_IDS * config.addition_time_embed_dim
        return {"text_embeds": _numbers(pooled), "time_ids": _numbers(SDXL_TIME_IDS)}
    if kind == "image":
        return {"image_embeds": _numbers(config.encoder_hid_dim)}
    if kind not in (None, "text"):
        raise ModelError(f"{denoiser.name}: conditions of kind {kind!r} are not known here")
    return None


def _attention_options(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    # Lumina-Next unpacks them without looking; its pipeline always passes some.
    return DeclaredConstant({}) if "encoder_mask" in denoiser.parameters else None


def _image_shapes(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    # Of Qwen-Image: frames and sides of each sample's packed images.
    return DeclaredConstant([(1, sizes.height // 2, sizes.width // 2)], per_sample=True)


def _class_label(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    if denoiser.parameters["class_labels"].default is not inspect.Parameter.empty:
        kind = denoiser.setting("class_embed_type")
        if kind in ("projection", "simple_projection"):
            return _numbers(denoiser.config.projection_class_embeddings_input_dim)
        labelled = denoiser.setting("num_class_embeds") or denoiser.setting("num_embeds_ada_norm")
        if kind is None and not labelled:
            return None
    return DeclaredTensor((), dtype="int64")


def _second_text(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    width = denoiser.setting("text_embed_2_dim")
    return _numbers(SECOND_TEXT_TOKENS[denoiser.name], width) if width else None


def _second_mask(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    width = denoiser.setting("text_embed_2_dim")
    return _ones(SECOND_TEXT_TOKENS[denoiser.name]) if width else None


def _t5(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    if denoiser.setting("cross_attention_dim_t5"):  # HunyuanDiT
        return _numbers(denoiser.config.text_len_t5, denoiser.config.cross_attention_dim_t5)
    if "encoder_hidden_states_llama3" in denoiser.parameters:
        return _numbers(sizes.text_tokens, context_width(denoiser.config))
    width = denoiser.setting("text_embed_dim_t5")  # EasyAnimate
    return _numbers(sizes.text_tokens, width) if width else None


def _llama_layers(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    layers, width = max(denoiser.config.llama_layers) + 1, denoiser.config.caption_channels[1]
    return DeclaredTensor((layers, sizes.text_tokens, width), 1)


def _padding_mask(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    if not denoiser.setting("concat_padding_mask"):
        return None
    sides = (sizes.height * COSMOS_VAE_FACTOR, sizes.width * COSMOS_VAE_FACTOR)
    return DeclaredTensor((1, 1, *sides), None)


def _control_latents(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    return _numbers(denoiser.config.vace_in_channels, sizes.frames, sizes.height, sizes.width)


def _text_layers(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    layers = denoiser.config.num_layers + denoiser.config.num_single_layers
    return [_numbers(sizes.text_tokens, denoiser.config.text_encoder_dim) for _ in range(layers)]


def _caption(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    return DeclaredTensor((sizes.text_tokens, context_width(denoiser.config)), as_list=True)


def _small(*shape: int) -> Any:
    return lambda denoiser, sizes: DeclaredTensor(shape)


def _whole(*shape: int) -> Any:
    return lambda denoiser, sizes: DeclaredTensor(shape, dtype="int64")


def _of(key: str, *before: int) -> Any:
    """Numbers as wide as a key of the config says."""
    return lambda denoiser, sizes: DeclaredTensor((*before, getattr(denoiser.config, key)))


def _where_set(*keys: str, before: tuple[int, ...] = ()) -> Any:
    """Numbers as wide as the first key of the config says that has a width; none where none has."""

    def made(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
        width = next(filter(None, map(denoiser.setting, keys)), None)
        return _numbers(*before, width) if width else None

    return made


def _time_step(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    # AnyFlow: each frame has its own.
    shape = (sizes.frames,) if "r_timestep" in denoiser.parameters else ()
    # Hunyuan's go into means with the text, which whole numbers cannot.
    return DeclaredTensor(shape, dtype="float" if denoiser.name.startswith("Hunyuan") else "int64")


MAKERS: dict[str, Any] = {
    **dict.fromkeys(("sample", "hidden_states", "x"), latents),
    **dict.fromkeys(TIME_STEPS, _time_step),
    "timestep_ratio": _small(),
    "input_ids": lambda d, sizes: (
        DeclaredTensor((sizes.height, sizes.width), dtype="int64") if "micro_conds" in d.parameters else None
    ),
    "timestep_cond": _where_set("time_cond_proj_dim"),
    "encoder_hidden_states": _context,
    "text_bth": _context,
    "text_lens": lambda denoiser, sizes: DeclaredTensor(
        (), dtype="int64", value_range=(sizes.text_tokens, sizes.text_tokens)
    ),
    "proj_embedding": lambda denoiser, sizes: DeclaredTensor((denoiser.config.embedding_dim,)),
    "encoder_attention_mask": _mask,
    "encoder_hidden_states_mask": lambda denoiser, sizes: None,
    "encoder_mask": _mask,
    "text_embedding_mask": _mask,
    "attention_mask": _attention_mask,
    "pooled_projections": _where_set("pooled_projection_dim", "in_text_dim2"),
    "guidance": _guidance,
    "img_ids": image_positions,
    "txt_ids": lambda denoiser, sizes: positions(sizes.text_tokens, axes(denoiser)),
    "img_shapes": _image_shapes,
    "image_rotary_emb": rotary_table,
    "added_cond_kwargs": _added_conditions,
    "cross_attention_kwargs": _attention_options,
    "class_labels": _class_label,
    "original_size": _small(2),
    "target_size": _small(2),
    "crop_coords": _small(2),
    # Videos
    "num_frames": lambda denoiser, sizes: DeclaredConstant(frames_of(denoiser, sizes)),
    "height": lambda denoiser, sizes: DeclaredConstant(sizes.height),
    "width": lambda denoiser, sizes: DeclaredConstant(sizes.width),
    "added_time_ids": _small(3),
    "fps": lambda d, sizes: _numbers() if "image_latents" in d.parameters else None,
    "image_latents": latents,
    "image_embeddings": _of("cross_attention_dim", 1),
    "padding_mask": _padding_mask,
    "control_hidden_states": _control_latents,
    "visual_rope_pos": rope_positions,
    "text_rope_pos": lambda denoiser, sizes: DeclaredTensor((sizes.text_tokens,), None, "int64"),
    # Several encoders
    "encoder_hidden_states_2": _second_text,
    "encoder_attention_mask_2": _second_mask,
    "encoder_hidden_states_t5": _t5,
    "text_embedding_mask_t5": lambda denoiser, sizes: _ones(denoiser.config.text_len_t5),
    "image_meta_size": _small(HUNYUAN_META_SIZES),
    "style": _whole(),
    "encoder_hidden_states_llama3": _llama_layers,
    "pooled_embeds": _of("text_emb_dim"),
    "text_encoder_layers": _text_layers,
    "cap_feats": _caption,
    "pooled_text_emb": _of("cond_embed_dim"),
    "micro_conds": _small(MICRO_CONDITIONS),
    "clip_text_pooled": _of("clip_text_pooled_in_channels", 1),
    "global_hidden_states": _of("global_states_input_dim", 1),
    "rotary_embedding": sound_rotary,
    "image_embeds": _where_set("image_embed_dim", before=(SIGLIP_TOKENS,)),
}


def derived_inputs(denoiser: Denoiser, sizes: CallSizes, given: Collection[str] = ()) -> dict[str, Declared]:
    """Keyword arguments of one call, by name, without those that are `given`.

    Raises UnknownInputError for one that the signature asks for and that is not known here.
    """
    arguments: dict[str, Declared] = {}
    for name, parameter in denoiser.parameters.items():
        if name in given:
            continue
        maker = MAKERS.get(name)
        value = maker(denoiser, sizes) if maker else None
        if value is not None:
            arguments[name] = value
        elif parameter.default is inspect.Parameter.empty:
            if maker is None:
                raise UnknownInputError(denoiser.name, name)
            arguments[name] = DeclaredConstant(None)
    return arguments
