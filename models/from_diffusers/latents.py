"""What a denoiser denoises: the shape of its first input, how many tokens it makes of it, and where these are."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from swinmr_profiling.configs.declared_inputs import Declared, DeclaredTensor
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.from_diffusers.denoiser import Denoiser

PACK = 2
# Networks of videos whose frames stand before the channels, and those whose channels come last.
FRAMES_FIRST = (
    "CogVideoXTransformer3DModel",
    "UNetSpatioTemporalConditionModel",
    "AnyFlowTransformer3DModel",
    "AnyFlowFARTransformer3DModel",
)
CHANNELS_LAST = ("Kandinsky5Transformer3DModel",)
# Networks of videos that neither 3D nor Video is in the name of.
VIDEO = ("UNetMotionModel", "I2VGenXLUNet")
# Networks of one axis: sound, and what a robot does.
SEQUENCES = ("UNet1DModel", "StableAudioDiTModel")
# Tokens of a prompt as the pipelines of a class pad it by default (`max_sequence_length` of their calls, without what a
# config says itself): diffusers 0.42. SD3 puts 77 of CLIP before 256 of T5.
TEXT_TOKENS = {
    "Flux": 512, "Flux2": 512, "Chroma": 512, "LongCatImage": 512, "Bria": 128, "BriaFibo": 2048, "OvisImage": 256,
    "QwenImage": 512, "SD3": 333, "AuraFlow": 256, "PixArt": 120, "Sana": 300, "SanaVideo": 300,
    "CogView3Plus": 224, "CogView4": 1024, "CogVideoX": 226, "LTXVideo": 128, "Wan": 512, "WanVACE": 512,
    "WanAnimate": 512, "SkyReelsV2": 512, "ChronoEdit": 512, "AnyFlow": 512, "Helios": 512, "Cosmos": 512,
    "HunyuanVideo": 256, "HunyuanVideo15": 1000, "HunyuanImage": 1000, "StableAudioDiTModel": 79,
    "HiDreamImage": 128, "Lumina2": 256, "LuminaNextDiT2DModel": 256, "ZImage": 512, "Kandinsky5": 512,
    "Mochi": 256, "Allegro": 512, "Latte": 120, "EasyAnimate": 256, "Kandinsky3UNet": 128, "PRX": 256,
    "ErnieImage": 512,
}  # fmt: skip
CLIP_TOKENS = 77
TOKEN_KEYS = ("max_text_seq_length", "text_len")
# Side of the table of rotary angles that Lumina-Next's pipeline makes for every call.
LUMINA_ROTARY_SIDE = 384
FRAME_KEYS = ("sample_frames", "video_length", "num_frames")


@dataclass(frozen=True)
class CallSizes:
    """hw: sides in latent pixels, before any packing, None where nobody knows them; tokens of the prompt; frames."""

    hw: tuple[int, int] | None
    text_tokens: int
    frames: int = 1

    @property
    def height(self) -> int:
        return self._sides()[0]

    @property
    def width(self) -> int:
        return self._sides()[1]

    def _sides(self) -> tuple[int, int]:
        if self.hw is None:
            raise ModelError(
                "model.img_size: inputs that are not described depend on the latents' sides: give it"
            )
        return self.hw


def usual_text_tokens(denoiser: Denoiser) -> int:
    """As its config has it, else as its pipelines pad a prompt, else 77 of CLIP."""
    for key in TOKEN_KEYS:
        if isinstance(tokens := denoiser.setting(key), int):
            return tokens
    family = denoiser.name.split("Transformer")[0]
    return TEXT_TOKENS.get(family, TEXT_TOKENS.get(denoiser.name, CLIP_TOKENS))


def usual_frames(denoiser: Denoiser) -> int:
    """Frames of latents: as its config has it, else one."""
    for key in FRAME_KEYS:
        if isinstance(frames := denoiser.setting(key), int):
            ratio = denoiser.setting("temporal_compression_ratio")
            return (frames - 1) // ratio + 1 if isinstance(ratio, int) else frames
    return 1


def has_packed_latents(denoiser: Denoiser) -> bool:
    """Whether the denoiser takes 2 x 2 latent pixels as one token (FLUX, Qwen-Image)."""
    names = denoiser.parameters
    return ("img_ids" in names and "img_sizes" not in names) or "img_shapes" in names


def is_video(denoiser: Denoiser) -> bool:
    """Whether the latents have an axis of frames."""
    name = denoiser.name
    return "3D" in name or "Video" in name or name in VIDEO or name in FRAMES_FIRST


def is_sequence(denoiser: Denoiser) -> bool:
    """Whether the latents have one axis beside their channels."""
    return denoiser.name in SEQUENCES


def frames_of(denoiser: Denoiser, sizes: CallSizes) -> int:
    """Frames of latents of a call."""
    return sizes.frames if is_video(denoiser) else 1


def latents(denoiser: Denoiser, sizes: CallSizes) -> DeclaredTensor:
    """The noisy latents, without the batch."""
    if denoiser.is_prior:
        return DeclaredTensor((denoiser.config.embedding_dim,))
    height, width = sizes.height, sizes.width
    channels = channels_of(denoiser)
    name = denoiser.name
    if has_packed_latents(denoiser):
        return DeclaredTensor(((height // PACK) * (width // PACK), channels))
    if (
        "num_frames" in denoiser.parameters and "video_coords" in denoiser.parameters
    ):  # LTX: tokens of its VAE
        return DeclaredTensor((sizes.frames * height * width, channels))
    if is_sequence(denoiser):
        return DeclaredTensor((channels, width))
    if "cap_feats" in denoiser.parameters:  # Z-Image: a list of samples, each with one frame
        return DeclaredTensor((channels, 1, height, width), as_list=True)
    if not is_video(denoiser):
        return DeclaredTensor((channels, height, width))
    if name in CHANNELS_LAST:
        return DeclaredTensor((sizes.frames, height, width, channels))
    if name in FRAMES_FIRST:
        return DeclaredTensor((sizes.frames, channels, height, width))
    return DeclaredTensor((channels, sizes.frames, height, width))


def channels_of(denoiser: Denoiser) -> int:
    """Channels of its first input. Raises ModelError where its config has none."""
    visual = denoiser.setting("in_visual_dim")
    if isinstance(visual, int):  # Kandinsky 5: beside them the condition, and whether there is one
        return 2 * visual + 1 if denoiser.setting("visual_cond") else visual
    channels = denoiser.setting("in_channels")
    if not isinstance(channels, int):
        raise ModelError(f"model.config.in_channels: {denoiser.name} has none of its own: give it")
    return channels


def patched(denoiser: Denoiser) -> tuple[int, int]:
    """(frames, pixels a side) of latents that become one token."""
    if has_packed_latents(denoiser):
        return 1, PACK
    patch: Any = denoiser.setting("patch_size") or 1
    if isinstance(patch, (list, tuple)):
        return int(patch[0]), int(patch[-1])
    frames = denoiser.setting("patch_size_t")
    return (frames if isinstance(frames, int) else 1), int(patch)


def image_tokens(denoiser: Denoiser, sizes: CallSizes) -> int:
    """Tokens of the latents."""
    frames, side = patched(denoiser)
    return (frames_of(denoiser, sizes) // frames) * (sizes.height // side) * (sizes.width // side)


def default_sides(denoiser: Denoiser) -> Any:
    """Sides of the latents by the class's own config, None where it has none."""
    if denoiser.is_prior:
        return (1, 1)
    size = denoiser.setting("sample_size")
    if is_sequence(denoiser) and isinstance(size, int):
        return (1, size)
    height, width = denoiser.setting("sample_height"), denoiser.setting("sample_width")
    if isinstance(height, int) and isinstance(width, int):
        return (height, width)
    return denoiser.setting("sample_size")


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
