"""State dicts as SwinIR, SwinMR and KAIR write them: with the masks and indices that this network computes instead.

Their scripts load strictly, and programs that recognise SwinIR by its keys look for these. All blocks share one
mask and one index here, so a file that `torch.save` writes holds each once: 16 MiB at 256 x 256, not 303 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.models.swin.swin_block import COMPUTED_TENSORS
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.models.swin.windows import class_masks, relative_position_index

BIAS_TABLE = "attn.relative_position_bias_table"


def official_size(network: SwinIR) -> tuple[int, int]:
    """(H, W) that the official network of this file is built with: `img_size`, up to whole windows."""
    window = network.window_size
    height, width = network.image_hw
    return height + -height % window, width + -width % window


@lru_cache(maxsize=4)
def attention_mask(image_hw: tuple[int, int], window_size: int, shift: int) -> Tensor:
    """The official `attn_mask`, fp32 (windows, N, N), windows in row-major order: 0 or -100."""
    down, across = image_hw[0] // window_size, image_hw[1] // window_size
    at_bottom = torch.arange(down, device="cpu") == down - 1
    at_right = torch.arange(across, device="cpu") == across - 1
    classes = (2 * at_bottom[:, None].long() + at_right[None, :].long()).flatten()
    return class_masks(window_size, shift, "cpu")[classes]


def official_state_dict(module: nn.Module, state: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The module's state dict, for a SwinIR with the tensors, names and order of the published files.

    Tensors are the module's own, or those of `state`, which was put together of one that is spread over processes; the
    added ones are shared by all blocks, on the CPU. A module of another kind has its state dict as it is.
    """
    state = module.state_dict() if state is None else dict(state)
    if not isinstance(module, SwinIR):
        return state
    mask = attention_mask(official_size(module), module.window_size, module.shift) if module.shift else None
    index = relative_position_index(module.window_size)
    shifted = {
        f"layers.{i}.residual_group.blocks.{j}."
        for i, group in enumerate(module.groups())
        for j, block in enumerate(group.residual_group.in_order())
        if block.shift
    }
    result: dict[str, Tensor] = {}
    for key, tensor in state.items():
        block = key.removesuffix("norm1.weight")
        if block in shifted and mask is not None:
            result[f"{block}attn_mask"] = mask
        result[key] = tensor
        if key.endswith(BIAS_TABLE):
            result[f"{key.removesuffix('bias_table')}index"] = index
    return result


def without_computed(state: Mapping[str, Any], own_keys: Iterable[str]) -> dict[str, Any]:
    """A state dict without the tensors that a network with these keys computes."""
    kept = set(own_keys)
    return {key: value for key, value in state.items() if key in kept or not key.endswith(COMPUTED_TENSORS)}
