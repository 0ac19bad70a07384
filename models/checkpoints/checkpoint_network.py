"""Which network a checkpoint holds, as the `model` section of a config: this project's own, or one of spandrel's."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from swinmr_profiling.models.checkpoints.checkpoint_files import read_checkpoint, sha256_of
from swinmr_profiling.models.checkpoints.published_weights import readings, state_dict_in
from swinmr_profiling.models.restoration.from_weights import restoration_section

# What marks SwinIR and SwinMR among state dicts; HAT, SRFormer and others have some of it.
SWINIR_KEYS = (
    "conv_first.weight",
    "layers.0.residual_group.blocks.0.attn.relative_position_bias_table",
    "layers.0.residual_group.blocks.0.attn.qkv.weight",
    "layers.0.residual_group.blocks.0.mlp.fc1.weight",
    "norm.weight",
)
BLOCK = re.compile(r"layers\.(\d+)\.residual_group\.blocks\.(\d+)\.(.+)")
OWN_PARTS = re.compile(
    r"(conv_first|patch_embed\.norm|norm|conv_after_body(\.\d)?|conv_last|conv_before_upsample\.0|upsample\.\d|conv_up[123]|"
    r"conv_hr|absolute_pos_embed|layers\.\d+\.conv(\.\d)?"
    r"|layers\.\d+\.residual_group\.blocks\.\d+\.(norm1|norm2|attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2))(\.weight|\.bias)?"
    r"|mean|layers\.\d+\.residual_group\.blocks\.\d+\.(attn\.relative_position_(bias_table|index)|attn_mask)"
)


@dataclass(frozen=True)
class FoundNetwork:
    """The `model` section that builds a network, and what to call it.

    sections: the whole config that the network was trained with, of a checkpoint that holds it.
    """

    section: dict[str, Any]
    words: str
    sections: dict[str, Any] | None = None


def found_network(file: Path) -> FoundNetwork:
    """The network of a checkpoint.

    Raises ModelError for a file that cannot be read, and for weights of no known network (the nearest three named).
    """
    content = read_checkpoint(file)
    own_run = _of_own_training(content)
    if own_run is not None:
        return own_run
    state_dict = state_dict_in(content, file)
    own = next(filter(None, map(swinir_section, readings(state_dict))), None)
    if own is not None:
        scale = "" if own["upscale"] == 1 else f", x{own['upscale']}"
        return FoundNetwork(own, f"SwinIR (SwinMR), {own['in_chans']} channels{scale}")
    named = next(filter(None, map(restoration_section, readings(state_dict))), None)
    if named is not None:
        kwargs = named["kwargs"]
        scale = f", x{kwargs['upscale']}" if "upscale" in kwargs else ""
        return FoundNetwork(
            named | {"img_size": 256},
            f"{named['architecture']}, {kwargs.get('num_in_ch', 3)} channels{scale}",
        )
    # Imported here: a SwinMR checkpoint needs no spandrel.
    from swinmr_profiling.models.libraries.spandrel_network import described

    description = described(state_dict, file)
    section = {
        "net_type": "spandrel",
        "checkpoint": str(file.absolute()),
        "checkpoint_sha256": sha256_of(file),
        "img_size": description.default_size,
    }
    scale = "" if description.scale == 1 else f", x{description.scale}"
    sizes = f"takes {description.sizes_in_words}"
    return FoundNetwork(
        section, f"{description.name} (spandrel), {description.in_chans} channels{scale}, {sizes}"
    )


def _of_own_training(content: Any) -> FoundNetwork | None:
    """The network of a checkpoint of `train.py`, which holds its config; None for other files.

    Nothing but the sections is taken from it, and whoever builds them checks them.
    """
    if not isinstance(content, dict) or not isinstance(content.get("format"), str):
        return None
    sections = content.get("config")
    if not content["format"].startswith("swinmr-profiling") or not isinstance(sections, dict):
        return None
    model = sections.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("net_type"), str):
        return None
    step = content.get("step")
    at = f", step {step}" if type(step) is int else ""
    return FoundNetwork(model, f"{model['net_type']}, by the config that it was trained with{at}", sections)


def swinir_section(state_dict: dict[str, Tensor]) -> dict[str, Any] | None:
    """The section of a SwinIR or SwinMR state dict; None for another network, or for one with parts that ours has not.

    `img_range`, dropouts and stochastic depth leave no trace in weights: they are the published defaults. The image
    size is that of the stored masks, or 256.
    """
    has_head = "conv_last.weight" in state_dict or "upsample.0.weight" in state_dict
    has_marks = all(key in state_dict for key in SWINIR_KEYS)
    if not (has_head and has_marks and all(map(OWN_PARTS.fullmatch, state_dict))):
        return None
    blocks: dict[int, int] = {}
    heads: dict[int, int] = {}
    for key, tensor in state_dict.items():
        if found := BLOCK.fullmatch(key):
            group = int(found[1])
            blocks[group] = max(blocks.get(group, 0), int(found[2]) + 1)
            if found[3] == "attn.relative_position_bias_table":
                heads[group] = tensor.shape[1]
    embed_dim, in_chans = state_dict["conv_first.weight"].shape[:2]
    first = "layers.0.residual_group.blocks.0."
    window = (math.isqrt(state_dict[f"{first}attn.relative_position_bias_table"].shape[0]) + 1) // 2
    upsampler, upscale, out_chans = _upsampling(state_dict, in_chans)
    if upsampler is not None and out_chans != in_chans:
        return None  # pixels became channels before the first convolution: spandrel knows such networks
    section: dict[str, Any] = {
        "net_type": "swinir",
        "in_chans": in_chans,
        "window_size": window,
        "depths": [blocks[group] for group in sorted(blocks)],
        "embed_dim": embed_dim,
        "num_heads": [heads[group] for group in sorted(heads)],
        "mlp_ratio": state_dict[f"{first}mlp.fc1.weight"].shape[0] / embed_dim,
        "qkv_bias": f"{first}attn.qkv.bias" in state_dict,
        "patch_norm": "patch_embed.norm.weight" in state_dict,
        "ape": "absolute_pos_embed" in state_dict,
        "upsampler": upsampler,
        "upscale": upscale,
        "resi_connection": "3conv" if "conv_after_body.0.weight" in state_dict else "1conv",
        "img_size": _image_side(state_dict, window),
    }
    if out_chans != in_chans:
        section["out_chans"] = out_chans
    return section


def _upsampling(state_dict: dict[str, Tensor], in_chans: int) -> tuple[str | None, int, int]:
    """upsampler, upscale, channels of the output."""
    last = state_dict.get("conv_last.weight")
    if last is None:  # every pixel of the output from one convolution, as many channels as came in
        return (
            "pixelshuffledirect",
            math.isqrt(state_dict["upsample.0.weight"].shape[0] // in_chans),
            in_chans,
        )
    doublings = sum(f"conv_up{stage}.weight" in state_dict for stage in (1, 2, 3))
    if doublings:
        return "nearest+conv", 2**doublings, last.shape[0]
    if "conv_before_upsample.0.weight" in state_dict:
        scale, index = 1, 0
        while (step := state_dict.get(f"upsample.{index}.weight")) is not None:
            scale *= math.isqrt(step.shape[0] // step.shape[1])
            index += 2
        return "pixelshuffle", scale, last.shape[0]
    return None, 1, last.shape[0]


def _image_side(state_dict: dict[str, Tensor], window: int) -> int:
    """The square image that a stored mask or position embedding was made for; 256 where there is none."""
    position = state_dict.get("absolute_pos_embed")
    if position is not None:
        return math.isqrt(position.shape[1])
    mask = next((tensor for key, tensor in state_dict.items() if key.endswith("attn_mask")), None)
    side = 0 if mask is None else math.isqrt(mask.shape[0]) * window
    return side if mask is not None and (side // window) ** 2 == mask.shape[0] else 256
