"""Which network of this folder a state dict belongs to: found by its names, held against the network's own sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from swinmr_profiling.models.restoration.build import NETWORKS

State = dict[str, Tensor]
BLOCK = re.compile(r"(?:body|backward_trunk\.main\.2)\.(\d+)\.conv1\.weight")


def restoration_section(state_dict: State) -> dict[str, Any] | None:
    """The `model` section of EDSR's, MSRResNet's or BasicVSR's weights as BasicSR names them; None for others.

    Scales of residuals and of the image's range leave no trace in weights: they are the published defaults.
    """
    for marks, name, arguments_of in KNOWN:
        if not all(mark in state_dict for mark in marks):
            continue
        try:
            kwargs = arguments_of(state_dict)
        except IndexError:  # a weight of fewer axes than a convolution's
            continue
        if _fits(name, kwargs, state_dict):
            return {"net_type": "restoration", "architecture": name, "kwargs": kwargs}
    return None


def _fits(name: str, kwargs: dict[str, Any], state_dict: State) -> bool:
    try:
        with torch.device("meta"):
            wanted = NETWORKS[name].network_class(**kwargs).state_dict()
    except (ValueError, RuntimeError):  # sizes that no such network has
        return False
    sizes = {key: tensor.shape for key, tensor in wanted.items()}
    return sizes == {key: tensor.shape for key, tensor in state_dict.items()}


def _blocks(state_dict: State) -> int:
    return sum(BLOCK.fullmatch(key) is not None for key in state_dict)


def _common(state_dict: State) -> dict[str, Any]:
    first = state_dict["conv_first.weight"]
    return {
        "num_in_ch": first.shape[1],
        "num_out_ch": state_dict["conv_last.weight"].shape[0],
        "num_feat": first.shape[0],
        "num_block": _blocks(state_dict),
    }


def _step(weight: Tensor) -> int:
    """How much larger a convolution before a pixel shuffle makes an image."""
    return math.isqrt(max(weight.shape[0] // max(weight.shape[1], 1), 1))


def _edsr(state_dict: State) -> dict[str, Any]:
    kwargs, upscale, index = _common(state_dict), 1, 0
    while (weight := state_dict.get(f"upsample.{index}.weight")) is not None:
        upscale *= _step(weight)
        index += 2
    if kwargs["num_in_ch"] != 3:  # the mean colour that it takes off has as many numbers
        kwargs["rgb_mean"] = [0.0] * kwargs["num_in_ch"]
    return {**kwargs, "upscale": upscale}


def _msrresnet(state_dict: State) -> dict[str, Any]:
    upscale = 4 if "upconv2.weight" in state_dict else _step(state_dict["upconv1.weight"])
    return {**_common(state_dict), "upscale": upscale}


def _basicvsr(state_dict: State) -> dict[str, Any]:
    return {"num_feat": state_dict["fusion.weight"].shape[0], "num_block": _blocks(state_dict)}


KNOWN: tuple[tuple[tuple[str, ...], str, Callable[[State], dict[str, Any]]], ...] = (
    (
        (
            "conv_first.weight", "body.0.conv1.weight", "conv_after_body.weight", "upsample.0.weight",
            "conv_last.weight",
        ),
        "EDSR",
        _edsr,
    ),
    (
        ("conv_first.weight", "body.0.conv1.weight", "upconv1.weight", "conv_hr.weight", "conv_last.weight"),
        "MSRResNet",
        _msrresnet,
    ),
    (
        ("spynet.mean", "backward_trunk.main.0.weight", "forward_trunk.main.0.weight", "fusion.weight"),
        "BasicVSR",
        _basicvsr,
    ),
)  # fmt: skip
