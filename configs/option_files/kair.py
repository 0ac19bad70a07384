"""Option files of SwinMR and KAIR (`netG`, `datasets`, `train`) as this project's sections.

Such a file is recognised by its shape. What has a counterpart is mapped; the rest is named in one message.
Values are passed on as they are, so that the schema checks them; errors then name the option file's own keys.
"""

from __future__ import annotations

import json
import re
from typing import Any

from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.field_types import MAX_COUNT
from swinmr_profiling.configs.option_files.discriminators import map_net_d
from swinmr_profiling.configs.option_files.imported import (
    SEPTUPLET,
    GivenClass,
    ImportedOptions,
    flat,
    folder_name,
    is_number,
    with_patch,
)
from swinmr_profiling.configs.option_files.losses import (
    OWN_NETWORKS,
    STAND_IN,
    known_optimizer,
    map_features,
    map_kair_losses,
    stand_in_note,
)
from swinmr_profiling.configs.option_files.networks import (
    kair_class_beside,
    known_networks,
    network_scale,
    network_section,
)

OPTION_FILE_SECTIONS = ("netG", "datasets", "train")

# Keys that are mapped one to one: option file -> config.
_SAME_MEANING = {
    "path.root": "paths.root",
    "path.pretrained_netG": "training.initial_weights",
    "datasets.test.dataroot_H": "data.val_dir",
    "datasets.train.dataroot_H": "data.train_dir",
    "train.E_decay": "training.ema_decay",
    "train.G_optimizer_lr": "training.optimizer.lr",
    "train.G_optimizer_wd": "training.optimizer.weight_decay",
    "train.G_optimizer_betas": "training.optimizer.betas",
    "train.G_scheduler_milestones": "training.scheduler.milestones",
    "train.G_scheduler_gamma": "training.scheduler.gamma",
    "train.checkpoint_test": "training.validate_every_steps",
    "train.checkpoint_save": "training.checkpoint_every_steps",
    "train.checkpoint_print": "logging.log_interval",
    "train.is_early_stopping": "training.early_stopping.enabled",
    "train.early_stopping_num": "training.early_stopping.patience",
    "manual_seed": "system.seed",
    "train.manual_seed": "system.seed",
    "dist": "system.distributed",
}
# Keys whose null, or empty text, means "the default": they are then left out.
_NULL_IS_DEFAULT = ("path.", "datasets.", "manual_seed", "train.manual_seed", "train.G_scheduler_")
_MASKS = {"G1D": "gaussian1d", "G2D": "gaussian2d", "P2D": "poisson2d", "R": "radial", "S": "spiral"}


def is_option_file(raw: dict[str, Any]) -> bool:
    """Whether a file is laid out like a SwinMR or KAIR option file: two of its sections, or `netG` alone."""
    if isinstance(raw.get("model"), dict):
        return False
    return "netG" in raw or sum(key in raw for key in OPTION_FILE_SECTIONS) >= 2


def import_options(
    raw: dict[str, Any], file: str | None = None, network: GivenClass | None = None
) -> ImportedOptions:
    """Map an option file. network: a class that stands for its own network.

    Raises:
        ConfigError: `netG` is missing or no object, or names another network than SwinIR or SwinMR.
    """
    _refuse_other_shapes(raw, file)
    if network is None and raw["netG"]["net_type"] not in OWN_NETWORKS:
        network = kair_class_beside(raw, file)
    options = flat({key: value for key, value in raw.items() if key != "netG"})
    result = ImportedOptions()
    result.messages.append("recognised as a SwinMR/KAIR option file: mapped to this project's sections")
    scale = _map_network(raw, options, result, file, network)
    _map_batch(options, result)
    _map_patch(options, scale, result)
    if network is not None:
        with_patch(result.sections["model"], result.sections.get("data", {}).get("patch_size"))
    _map_mask(options, result)
    map_kair_losses(options, result)
    map_features(options, result)
    map_net_d(raw, options, file, result)
    _map_optimizer(options, result)
    if "train" in raw:
        options.setdefault("train.E_decay", 0)  # KAIR's default: no moving average
    for origin, path in _SAME_MEANING.items():
        if origin in options:
            value = options.pop(origin)
            if value in (None, "") and origin.startswith(_NULL_IS_DEFAULT):
                continue
            if origin == "train.checkpoint_test" and is_number(value) and value > MAX_COUNT:
                continue  # some files write "never" as 50000000000
            if origin == "train.G_scheduler_milestones":
                value = _completed_steps(value, result)
            if origin.endswith("dataroot_H") and isinstance(value, str) and re.fullmatch(r"\[.*\]", value):
                result.messages.append(f'{origin} "{value}" is a placeholder, not a folder: left out')
                continue
            result.put(path, value, origin)
    if isinstance(options.get("task"), str) and options["task"]:
        result.put("experiment_name", folder_name(options.pop("task")), "task")
    if options:
        result.messages.append(f"no counterpart here, not used: {', '.join(options)}")
    return result


def _completed_steps(milestones: Any, result: ImportedOptions) -> Any:
    """Milestones of KAIR's trainers, which set the rate before a step and count it already, in completed steps."""
    if not isinstance(milestones, list) or not all(type(step) is int and step > 1 for step in milestones):
        return milestones
    if milestones:
        result.messages.append(
            f"train.G_scheduler_milestones: step {milestones[0]} is the first at the new rate, so "
            f"{milestones[0] - 1} steps are at the one before: each is one less here"
        )
    return [step - 1 for step in milestones]


def _refuse_other_shapes(raw: dict[str, Any], file: str | None) -> None:
    for key in OPTION_FILE_SECTIONS:
        if key in raw and not isinstance(raw[key], dict):
            raise ConfigError(file, [f"{key}: expected an object {{...}}, got {json.dumps(raw[key])[:60]}"])
    known = ", ".join(f'"{name}"' for name in known_networks()["KAIR"])
    if "netG" not in raw:
        raise ConfigError(
            file, [f"netG: missing: the network's options, with net_type (one of {known}), are required"]
        )
    if raw["netG"].get("net_type") is None:
        raise ConfigError(file, [f"netG.net_type: missing: expected one of {known}"])


def _map_network(
    raw: dict[str, Any],
    options: dict[str, Any],
    result: ImportedOptions,
    file: str | None,
    given_class: GivenClass | None,
) -> Any:
    """Puts the network; returns how often its output is larger than its input."""
    network = dict(raw["netG"])
    if given_class is not None:
        result.sections["model"] = given_class.section(network, None, _frames(options, result))
        result.messages.append(given_class.note("netG", network["net_type"]))
        options.pop("n_channels", None)
        return options.pop("scale", 1) or network_scale(network)
    if network["net_type"] not in OWN_NETWORKS:
        result.origins["model.kwargs"] = "netG"
        scale = options.pop("scale", 1) or 1
        options.pop("n_channels", None)
        result.sections["model"] = network_section("KAIR", network, scale, file)
        return network_scale(result.sections["model"]["kwargs"])
    # KAIR hands these two down to the network and the data where they are not set there.
    for key, given in (("scale", "upscale"), ("n_channels", "in_chans")):
        value = options.pop(key, None)
        if value is None:
            continue
        if given not in network:
            network[given] = value
            result.origins[f"model.{given}"] = key
        elif network[given] != value:
            result.messages.append(f"{key} {value} is not used: netG.{given} is {network[given]}")
    result.sections["model"] = network
    return network.get("upscale", 1)


def _frames(options: dict[str, Any], result: ImportedOptions) -> Any:
    """Frames of a sample; None where it is an image. Vimeo-90K has seven: mirrored 14, padded 8."""
    frames = options.pop("datasets.train.num_frame", None)
    mirrored = options.pop("datasets.train.mirror_sequence", False)
    padded = options.pop("datasets.train.pad_sequence", False)
    if frames is None:
        return None
    given = frames
    if frames == -1:
        frames = SEPTUPLET
    if type(frames) is int and (mirrored or padded):
        frames = 2 * frames if mirrored else frames + 1
    if frames != given:
        text = "mirrored" if mirrored else "padded by one" if padded else "all of a sample of Vimeo-90K"
        result.messages.append(f"datasets.train.num_frame {given}: {frames} frames ({text})")
    return frames


def _map_batch(options: dict[str, Any], result: ImportedOptions) -> None:
    gpu_ids = options.pop("gpu_ids", None)
    devices = len(gpu_ids) if isinstance(gpu_ids, list) and gpu_ids else 1
    for origin, path, least in (
        ("datasets.train.dataloader_batch_size", "data.batch_size", 1),
        ("datasets.train.dataloader_num_workers", "data.num_workers", 0),
    ):
        value = options.pop(origin, None)
        if value is None:
            continue
        if devices > 1 and type(value) is int and value > 0:
            each = max(value // devices, least)
            text = f"{origin} {value} is for all {devices} gpu_ids: {path} is {each} per device"
            if each * devices != value:
                text += f" ({value} / {devices} is not a whole number: {each * devices} in all)"
            result.messages.append(text)
            value = each
        result.put(path, value, origin)
    origin = "datasets.test.dataloader_batch_size"
    result.put_given("data.val_batch_size", options.pop(origin, None), origin)


def _map_patch(options: dict[str, Any], scale: Any, result: ImportedOptions) -> None:
    origin = "datasets.train.gt_size" if "datasets.train.gt_size" in options else "datasets.train.H_size"
    size = options.pop(origin, None)
    # The blind degradations of BSRGAN crop once more, to a size of their own.
    blind = options.pop("datasets.train.lq_patchsize", None)
    if blind is not None:
        result.put("data.patch_size", blind, "datasets.train.lq_patchsize")
        return
    if size is None:
        return
    if type(size) is int and type(scale) is int and scale > 1 and size >= scale:
        result.messages.append(
            f"{origin} {size} is the enlarged patch: data.patch_size is {size // scale} (upscale {scale})"
        )
        size //= scale
    result.put("data.patch_size", size, origin)


def _map_mask(options: dict[str, Any], result: ImportedOptions) -> None:
    names = [options.pop(key, None) for key in ("datasets.train.mask", "datasets.test.mask", "mask")]
    name = next((value for value in names if isinstance(value, str)), None)
    if name is None:
        return
    found = re.fullmatch(r"(G1D|G2D|P2D|R|S)([1-9]\d)", name)
    if found is None:
        result.messages.append(f'mask "{name}" is not known: set data.degradation yourself')
        return
    kind, percent = _MASKS[found[1]], int(found[2])
    result.put("data.degradation.mask", kind, "datasets.train.mask")
    result.put("data.degradation.sampled_fraction", percent / 100, "datasets.train.mask")
    result.put("data.degradation.fixed", True)
    result.messages.append(
        f'mask "{name}" is drawn as {kind}, {percent} %, once for all slices, not SwinMR\'s mask file: figures are not '
        'comparable; for the file set mask "file" and mask_file'
    )


def _map_optimizer(options: dict[str, Any], result: ImportedOptions) -> None:
    kind, origin = options.pop("train.G_optimizer_type", None), "train.G_optimizer_type"
    known = known_optimizer(kind)
    if known is None and kind is not None:
        known = STAND_IN
        name = kind if isinstance(kind, str) else json.dumps(kind)
        result.messages.append(stand_in_note(origin, name))
    result.put_given("training.optimizer.type", known, origin)
    schedule = options.pop("train.G_scheduler_type", None)
    if schedule not in (None, "MultiStepLR"):
        text = f"train.G_scheduler_type {json.dumps(schedule)} has no counterpart: the rate stays constant"
        result.messages.append(text)
        result.put("training.scheduler.type", "none", "train.G_scheduler_type")
    # KAIR takes null and 0 as no clipping.
    clip = options.pop("train.G_optimizer_clipgrad", None) or None
    result.put_given("training.gradient.clip_norm", clip, "train.G_optimizer_clipgrad")
