"""Losses of option files as the parts of `multi_component`, and optimizers by the name that a framework gives them."""

from __future__ import annotations

import json
from typing import Any

from swinmr_profiling.configs.option_files.imported import ImportedOptions, is_number, number

# Their names, in lower case and without "loss" and underscores.
_PIXEL = {"l1": "l1", "mse": "mse", "l2": "mse", "charbonnier": "charbonnier"}
_PERCEPTUAL = ("perceptual", "vggperceptual", "perceptualfp16")
_ADVERSARIAL = ("gan", "multiscalegan", "ganfeat")
# Convolutions of each stage of VGG19, whose layers `vgg19.features` numbers: each convolution and its ReLU, a pool.
_VGG19_STAGES = (2, 2, 4, 4, 4)
_DEFAULT_LAYERS = {"conv1_2": 0.1, "conv2_2": 0.1, "conv3_4": 1.0, "conv4_4": 1.0, "conv5_4": 1.0}
_PLACE = "training.loss.components"
# Networks of this project, whose default loss is the published one, and what KAIR calls their losses.
OWN_NETWORKS = ("swinir", "swinmr")
_LOSS_TYPES = {"charbonnier": "charbonnier", "l1": "l1", "l2": "mse"}


def vgg19_layers() -> dict[str, int]:
    """ "conv5_4" -> 34: the index in torchvision's `vgg19().features` of each convolution and ReLU."""
    found, index = {}, 0
    for stage, convolutions in enumerate(_VGG19_STAGES, 1):
        for place in range(1, convolutions + 1):
            found[f"conv{stage}_{place}"] = index
            found[f"relu{stage}_{place}"] = index + 1
            index += 2
        found[f"pool{stage}"] = index
        index += 1
    return found


def map_losses(train: dict[str, Any], result: ImportedOptions) -> None:
    """Puts every loss that has a counterpart; names the others in one line.

    An adversarial loss is told with the discriminator. Where none has a counterpart, L1 stands in, and is said to.
    """
    result.put("training.loss.type", "multi_component")
    for part in ("spatial", "frequency", "perceptual"):
        result.put(f"{_PLACE}.{part}.weight", 0.0)
    left_out: list[str] = []
    mapped = False
    for origin, section in _losses(train):
        kind = str(section["type"]).lower().replace("_", "").removesuffix("loss")
        weight = _weight(section)
        if not weight or kind in _ADVERSARIAL:
            continue
        place = result.sections["training"]["loss"]["components"]
        if kind in _PIXEL and not place["spatial"]["weight"] and not origin.endswith("ldl_opt"):
            result.put(f"{_PLACE}.spatial.type", _PIXEL[kind], f"{origin}.type")
            result.put(f"{_PLACE}.spatial.weight", weight, f"{origin}.loss_weight")
            mapped = True
        elif kind == "ssim" and not place.get("ssim"):
            result.put(f"{_PLACE}.ssim.weight", weight, f"{origin}.loss_weight")
            mapped = True
        elif (
            kind in _PERCEPTUAL
            and not place["perceptual"]["weight"]
            and _map_perceptual(section, origin, result)
        ):
            mapped = True
        else:
            left_out.append(f"{section.get('type')} ({weight:g}, {origin})")
    if not mapped:
        result.put(f"{_PLACE}.spatial.type", "l1")
        result.put(f"{_PLACE}.spatial.weight", 1.0)
    if left_out or not mapped:
        text = f"losses without a counterpart, not in the prediction: {', '.join(left_out) or 'all of them'}"
        result.messages.append(text if mapped else f"{text}; L1 stands in for all")


def _losses(train: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Where each loss stands in the file, and its options."""
    found = [
        (f"train.{key}", section)
        for key, section in train.items()
        if key.endswith("_opt") and isinstance(section, dict) and "type" in section
    ]
    listed = train.get("losses")
    if isinstance(listed, list):
        found += [
            (f"train.losses.{index}", section)
            for index, section in enumerate(listed)
            if isinstance(section, dict) and "type" in section
        ]
    return found


def _weight(section: dict[str, Any]) -> float:
    found = number(section.get("perceptual_weight", section.get("loss_weight", 1.0)))
    return 1.0 if found is None else found


def _map_perceptual(section: dict[str, Any], origin: str, result: ImportedOptions) -> bool:
    layers = section.get("layer_weights") or _DEFAULT_LAYERS
    known = vgg19_layers()
    if (
        section.get("vgg_type", "vgg19") != "vgg19"
        or not isinstance(layers, dict)
        or not set(layers) <= set(known)
    ):
        return False
    ordered = sorted(layers, key=lambda name: known[name])
    place = f"{_PLACE}.perceptual"
    result.put(f"{place}.weight", _weight(section), f"{origin}.perceptual_weight")
    result.put(f"{place}.layers", [known[name] for name in ordered], f"{origin}.layer_weights")
    result.put(f"{place}.layer_weights", [float(layers[name]) for name in ordered], f"{origin}.layer_weights")
    result.put(f"{place}.missing_weights", "predict")
    criterion = section.get("criterion", "l1")
    extra = [key for key in ("style_weight", "patchloss", "ipk") if section.get(key)]
    if criterion != "l1" or extra:
        words = ", ".join([*([] if criterion == "l1" else [f"criterion {criterion}, taken as l1"]), *extra])
        result.messages.append(f"{origin}: not in the prediction: {words}")
    return True


def map_features(options: dict[str, Any], result: ImportedOptions) -> None:
    """KAIR's loss on VGG19 features, of its adversarial training alone."""
    place = f"{_PLACE}.perceptual"
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


def map_kair_losses(options: dict[str, Any], result: ImportedOptions) -> None:
    """SwinMR's and KAIR's losses."""
    kind = options.pop("train.G_lossfn_type", None)
    factor = options.pop("train.G_lossfn_weight", 1.0)
    eps = options.pop("train.G_charbonnier_eps", None)
    weights = {name: options.pop(f"train.{name}", None) for name in ("alpha", "beta", "gamma")}
    # SwinMR weights three parts and multiplies their sum; KAIR's own trainers have the image part alone.
    image_only = all(value is None for value in weights.values())
    if kind is None and image_only:
        return
    if result.sections["model"]["net_type"] not in OWN_NETWORKS:
        result.put("training.loss.type", "multi_component")
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
        result.put(f"{_PLACE}.{part}.weight", value, origin)
    if not is_number(factor):
        result.put(f"{_PLACE}.spatial.weight", factor, "train.G_lossfn_weight")
    if kind == "ssim" and image_only:
        result.put(
            f"{_PLACE}.ssim.weight", result.sections["training"]["loss"]["components"]["spatial"]["weight"]
        )
        result.put(f"{_PLACE}.spatial.weight", 0.0)
    elif isinstance(kind, str) and kind in _LOSS_TYPES:
        for part in ("spatial", "frequency"):
            result.put(f"{_PLACE}.{part}.type", _LOSS_TYPES[kind], "train.G_lossfn_type")
    elif kind is not None:
        result.messages.append(
            f"train.G_lossfn_type {json.dumps(kind)} has no counterpart: charbonnier is used"
        )
    if weights["beta"] is not None:
        result.put(f"{_PLACE}.frequency.transform", "swinmr")
    for part in ("spatial", "frequency"):
        result.put_given(f"{_PLACE}.{part}.eps", eps, "train.G_charbonnier_eps")


# Their names, in lower case and without underscores and hyphens.
_OURS = {
    "adam": "adam",
    "adamw": "adamw",
    "sgd": "sgd",
    "adafactor": "adafactor",
    "muon": "muon",
    "adam8bit": "adam_8bit",
    "adamw8bit": "adamw_8bit",
}
# Numbers that others keep of each parameter between steps, read from neosr's and traiNNer-redux' code.
_STATE = {
    "nadam": 2,
    "stableadamw": 2,
    "adopt": 2,
    "adamwsf": 2,
    "adamwschedulefree": 2,
    "adamwwin": 3,
    "adan": 4,
    "adansf": 5,
}
STAND_IN, STAND_IN_STATE = "adamw", 2
BYTES = 4


def known_optimizer(given: Any) -> str | None:
    """`training.optimizer.type` of a framework's name; None where there is no such optimizer here."""
    return _OURS.get(_plain(given))


def stand_in_note(origin: str, given: Any) -> str:
    """What AdamW in the place of another optimizer leaves out, in a line."""
    state = _STATE.get(_plain(given))
    if state is None:
        rest = f"; {given}'s own state is not in the prediction"
    elif state == STAND_IN_STATE:
        rest = f", as is that of {given}"
    else:
        more = (state - STAND_IN_STATE) * BYTES
        rest = f"; {given} keeps {state}: {more} bytes a parameter more than is predicted"
    stand_in = f"AdamW stands in, whose state is {STAND_IN_STATE} numbers a parameter"
    return f"{origin} {given} has no counterpart: {stand_in}{rest}"


def map_optimizer(section: Any, result: ImportedOptions) -> None:
    """`train.optim_g` of BasicSR and its kin."""
    if not isinstance(section, dict):
        return
    given = section.get("type")
    kind = known_optimizer(given)
    origin = "train.optim_g"
    if kind is None and given is not None:
        result.messages.append(stand_in_note(f"{origin}.type", given))
    result.put("training.optimizer.type", kind or STAND_IN, f"{origin}.type")
    for key in ("lr", "weight_decay"):
        result.put_given(f"training.optimizer.{key}", number(section.get(key)), f"{origin}.{key}")
    betas = section.get("betas")
    if isinstance(betas, list) and len(betas) == 2:
        result.put("training.optimizer.betas", [number(beta) for beta in betas], f"{origin}.betas")
    if kind in ("sgd", "muon") and is_number(section.get("momentum")):
        result.put("training.optimizer.momentum", float(section["momentum"]), f"{origin}.momentum")


def _plain(given: Any) -> str:
    return str(given).lower().replace("_", "").replace("-", "")
