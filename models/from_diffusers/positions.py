"""Where tokens are: positions and rotary tables that pipelines hand to a denoiser."""

from __future__ import annotations

import inspect

from swinmr_profiling.configs.declared_inputs import Declared, DeclaredTensor
from swinmr_profiling.models.from_diffusers.denoiser import Denoiser
from swinmr_profiling.models.from_diffusers.latents import (
    CallSizes,
    has_packed_latents,
    image_tokens,
    patched,
)

# Side of the table of rotary angles that Lumina-Next's pipeline makes for every call.
LUMINA_ROTARY_SIDE = 384


def rotary_table(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    """Cosines and sines of the latents, where a network does not make its own."""
    config = denoiser.config
    if denoiser.parameters["image_rotary_emb"].default is inspect.Parameter.empty:
        head = config.hidden_size // config.num_attention_heads
        shape = (LUMINA_ROTARY_SIDE, LUMINA_ROTARY_SIDE, head // 2)
        return DeclaredTensor(shape, None, "complex64")
    if denoiser.setting("use_rotary_positional_embeddings") or "image_meta_size" in denoiser.parameters:
        table = DeclaredTensor((image_tokens(denoiser, sizes), config.attention_head_dim), None, "float32")
        return [table, table]  # cosines and sines (CogVideoX, HunyuanDiT)
    if denoiser.name.startswith("Allegro"):
        return allegro_rotary(denoiser, sizes)
    return None  # the network makes its own


def allegro_rotary(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    """Cosines and sines of each axis, and each token's place on it."""
    frames, side = patched(denoiser)
    places = (sizes.frames // frames, sizes.height // side, sizes.width // side)
    width = denoiser.config.attention_head_dim // len(places)
    grid = DeclaredTensor((1, image_tokens(denoiser, sizes)), None, "int64", (0, 0))
    tables: list[Declared] = [[DeclaredTensor((place, width), None, "float32")] * 2 for place in places]
    return [tables, [grid] * len(places)]


def sound_rotary(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    """Of Stable Audio."""
    # One token of the global states stands before the sound.
    table = DeclaredTensor((sizes.width + 1, denoiser.config.attention_head_dim // 2), None, "float32")
    return [table, table]


def positions(tokens: int, axes: int) -> DeclaredTensor:
    """Places of tokens, the same for each sample."""
    return DeclaredTensor((tokens, axes), None)


def axes(denoiser: Denoiser) -> int:
    """Axes that a token has a place on."""
    return len(denoiser.setting("axes_dims_rope") or (0, 0, 0))


def image_positions(denoiser: Denoiser, sizes: CallSizes) -> Declared | None:
    """Places of the tokens of packed latents."""
    if not has_packed_latents(denoiser):
        return None
    return positions(image_tokens(denoiser, sizes), axes(denoiser))


def rope_positions(denoiser: Denoiser, sizes: CallSizes) -> Declared:
    """Of Kandinsky 5: places on each axis."""
    _, height, width = denoiser.config.patch_size
    sides = (sizes.frames, sizes.height // height, sizes.width // width)
    return [DeclaredTensor((side,), None, "int64") for side in sides]
