"""Losses of SwinMR's and KAIR's option files as the parts of `multi_component`."""

from __future__ import annotations

import json
from typing import Any

from swinmr_profiling.configs.option_files.imported import ImportedOptions, is_number

# Networks of this project, whose default loss is the published one.
OWN_NETWORKS = ("swinir", "swinmr")
_LOSS_TYPES = {"charbonnier": "charbonnier", "l1": "l1", "l2": "mse"}


def map_features(options: dict[str, Any], result: ImportedOptions) -> None:
    """KAIR's loss on VGG19 features, of its adversarial training alone."""
    place = "training.loss.components.perceptual"
    weight = options.pop("train.F_lossfn_weight", None)
    layers, weights = options.pop("train.F_feature_layer", 34), options.pop("train.F_weights", 1.0)
    kind = options.pop("train.F_lossfn_type", "l1")
    for key in ("train.F_use_input_norm", "train.F_use_range_norm"):
        options.pop(key, None)
    if not weight:
        return
    listed = layers if isinstance(layers, list) else [layers]
    result.put(f"{place}.weight", weight, "train.F_lossfn_weight")
    result.put(f"{place}.layers", listed, "train.F_feature_layer")
    result.put(
        f"{place}.layer_weights",
        weights if isinstance(weights, list) else [weights] * len(listed),
        "train.F_weights",
    )
    result.put(f"{place}.missing_weights", "predict")
    if kind != "l1":
        result.messages.append(f"train.F_lossfn_type {json.dumps(kind)} is taken as l1 (no cost)")


def map_losses(options: dict[str, Any], result: ImportedOptions) -> None:
    loss = "training.loss.components"
    kind = options.pop("train.G_lossfn_type", None)
    factor = options.pop("train.G_lossfn_weight", 1.0)
    eps = options.pop("train.G_charbonnier_eps", None)
    weights = {name: options.pop(f"train.{name}", None) for name in ("alpha", "beta", "gamma")}
    if kind is None and all(value is None for value in weights.values()):
        return
    if result.sections["model"]["net_type"] not in OWN_NETWORKS:
        result.put("training.loss.type", "multi_component")
    # SwinMR weights three parts and multiplies their sum; KAIR's own trainers have the image part alone.
    image_only = all(value is None for value in weights.values())
    scale = factor if is_number(factor) else 1.0
    for name, part, without in (
        ("alpha", "spatial", 1.0),
        ("beta", "frequency", 0.0),
        ("gamma", "perceptual", 0.0),
    ):
        value = without if weights[name] is None else weights[name]
        if is_number(value):
            value = value * scale
        origin = "train.G_lossfn_weight" if image_only else f"train.{name}"
        result.put(f"{loss}.{part}.weight", value, origin)
    if not is_number(factor):
        result.put(f"{loss}.spatial.weight", factor, "train.G_lossfn_weight")
    if kind == "ssim" and image_only:
        result.put(
            f"{loss}.ssim.weight", result.sections["training"]["loss"]["components"]["spatial"]["weight"]
        )
        result.put(f"{loss}.spatial.weight", 0.0)
    elif isinstance(kind, str) and kind in _LOSS_TYPES:
        result.put(f"{loss}.spatial.type", _LOSS_TYPES[kind], "train.G_lossfn_type")
        result.put(f"{loss}.frequency.type", _LOSS_TYPES[kind], "train.G_lossfn_type")
    elif kind is not None:
        result.messages.append(
            f"train.G_lossfn_type {json.dumps(kind)} has no counterpart: charbonnier is used"
        )
    if weights["beta"] is not None:
        result.put(f"{loss}.frequency.transform", "swinmr")
    if eps is not None:
        result.put(f"{loss}.spatial.eps", eps, "train.G_charbonnier_eps")
        result.put(f"{loss}.frequency.eps", eps, "train.G_charbonnier_eps")
