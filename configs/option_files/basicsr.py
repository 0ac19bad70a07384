"""Option files of BasicSR, traiNNer-redux (YAML) and neosr (TOML) as this project's sections.

The three share one layout (`network_g`, `datasets`, `train`), which is how they are recognised; what differs is the
names of networks, losses and a few keys. What comes out is the generator's training step, perceptual network included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.option_files.discriminators import map_discriminator
from swinmr_profiling.configs.option_files.imported import (
    SEPTUPLET,
    GivenClass,
    ImportedOptions,
    flat,
    folder_name,
    is_number,
    number,
    with_patch,
)
from swinmr_profiling.configs.option_files.losses import map_losses, map_optimizer
from swinmr_profiling.configs.option_files.networks import FRAMES, class_beside, network_section

BASICSR, TRAINNER, NEOSR = "BasicSR", "traiNNer-redux", "neosr"
# Keys that only one of them has.
TRAINNER_KEYS = ("use_amp", "amp_bf16", "use_channels_last", "high_order_degradation", "onnx", "use_compile")
# Networks whose samples are several frames.
VIDEO_NETWORKS = ("BasicVSR",)
_NETWORK_FRAMES = tuple(f"network_g.{name}" for name in FRAMES)
# Theirs -> ours, whole numbers; none of them changes what a step costs.
_COUNTS = {
    "datasets.train.num_worker_per_gpu": "data.num_workers",
    "train.total_iter": "training.total_steps",
    "logger.total_iter": "training.total_steps",
    "logger.print_freq": "logging.log_interval",
    "logger.save_checkpoint_freq": "training.checkpoint_every_steps",
    "val.val_freq": "training.validate_every_steps",
    "manual_seed": "system.seed",
}
# What changes the cost of a step and has no counterpart: path -> what it is. Said once for each that is set.
_COSTS = {
    "queue_size": "pairs kept on the GPU",
    "high_order_degradation": "degradation made on the GPU",
    "train.sam": "a second forward and backward",
    "train.wavelet_guided": "losses of wavelets",
    "train.eco": "a blended target",
    "train.match_lq_colors": "colours matched to the input",
    "train.r1_reg_weight": "a regulariser of gradients",
    "train.path_reg_weight": "a regulariser of gradients",
    "train.fix_flow": "a part that is not trained at first",
    "fast_matmul": "TF32, faster",
    "train.use_moa": "augmentation on the GPU",
    "train.ema_switch_iter": "weights exchanged with their average",
}


def is_basicsr(raw: dict[str, Any]) -> bool:
    """Whether a file is laid out like an option file of BasicSR and its kin: a `network_g` that has a `type`."""
    network = raw.get("network_g")
    return isinstance(network, dict) and "type" in network


def framework_of(raw: dict[str, Any], suffix: str) -> str:
    """Which of the three a file is of, by its format and its keys."""
    if suffix == ".toml":
        return NEOSR
    train = raw.get("train")
    if any(key in raw for key in TRAINNER_KEYS) or (isinstance(train, dict) and "losses" in train):
        return TRAINNER
    return NEOSR if raw.get("model_type") in ("image", "otf") else BASICSR


def import_basicsr(
    raw: dict[str, Any], suffix: str, file: str | None = None, network: GivenClass | None = None
) -> ImportedOptions:
    """Map an option file. network: a class that stands for its own network.

    Raises ConfigError for a network that is not known here, and for sections of another kind.
    """
    framework = framework_of(raw, suffix)
    for key in ("network_g", "datasets", "train", "path", "val", "logger"):
        if key in raw and raw[key] is not None and not isinstance(raw[key], dict):
            raise ConfigError(
                file, [f"{key}: expected a section, got {json.dumps(raw[key], default=str)[:60]}"]
            )
    result = ImportedOptions(origins={"model.kwargs": "network_g", "model": "network_g"})
    result.messages.append(f"recognised as an option file of {framework}: mapped to this project's sections")
    options = flat(raw)
    scale = _count(options.pop("scale", 1)) or 1
    options.pop("network_g.type", None)
    if network is None:
        network = class_beside(framework, raw["network_g"]["type"], file)
    if network is not None:
        # traiNNer-redux hands its scale down to the class; neosr's modules read the option file themselves.
        frames = _frames(options, result, network.frames)
        section = network.section(raw["network_g"], scale if framework == TRAINNER else None, frames)
        if framework == NEOSR and file is not None:
            section["command_line"] = ["-opt", str(Path(file).absolute())]
        result.messages.append(network.note("network_g", raw["network_g"]["type"]))
    else:
        section = network_section(framework, raw["network_g"], scale, file)
    result.sections["model"] = section
    if section.get("architecture") in VIDEO_NETWORKS and "datasets.train.num_frame" in options:
        result.put_given("model.frames", _frames(options, result), "datasets.train.num_frame")
    for key in [key for key in options if key.startswith("network_g.")]:
        options.pop(key)
    _map_batch(options, result)
    _map_patch(options, scale, result)
    if network is not None:
        with_patch(section, result.sections.get("data", {}).get("patch_size"))
    _map_precision(options, framework, result)
    _map_training(raw, options, framework, result)
    for origin, path in _COUNTS.items():
        value = _count(options.pop(origin, None))
        if value is not None and (value > 0 or path == "system.seed" or path.endswith("num_workers")):
            result.put(path, value, origin)
    if isinstance(raw.get("name"), str) and raw["name"]:
        result.put("experiment_name", folder_name(options.pop("name")), "name")
    if isinstance(raw.get("network_d"), dict):
        map_discriminator(raw, framework, file, result)
    _say_what_is_left(options, result)
    return result


def _frames(options: dict[str, Any], result: ImportedOptions, default: int | None = None) -> Any:
    """Frames of a sample, None where it is an image. default: the network's own, where the file does not say it.

    -1 is all of Vimeo-90K's seven; `flip_sequence` adds them once more, backwards.
    """
    origin = "datasets.train.num_frame"
    frames = _count(options.pop(origin, options.pop("datasets.train.clip_size", None)))
    if frames == -1:
        frames = SEPTUPLET * (2 if options.get("datasets.train.flip_sequence") else 1)
        result.messages.append(f"{origin} -1 is all frames of Vimeo-90K's samples: {frames}")
    if frames is None:  # a file for testing alone, which may not say it
        frames = next((_count(options[key]) for key in _NETWORK_FRAMES if key in options), None)
    if frames is None and default is not None:
        return default
    kinds = [str(value).lower() for key, value in options.items() if key.endswith(".type")]
    if frames is None and any(word in kind for kind in kinds for word in ("video", "vimeo", "reds", "vid4")):
        frames = SEPTUPLET
        result.messages.append(f"the file does not say how many frames a sample has: {frames} are assumed")
    return frames


def _map_batch(options: dict[str, Any], result: ImportedOptions) -> None:
    for key in ("batch_size_per_gpu", "batch_size"):
        origin = f"datasets.train.{key}"
        result.put_given("data.batch_size", _count(options.pop(origin, None)), origin)
    for key in ("accum_iter", "accumulate"):
        origin = f"datasets.train.{key}"
        value = _count(options.pop(origin, options.pop(f"train.{key}", None)))
        if value:
            result.put("training.accumulate", value, origin)


def _map_patch(options: dict[str, Any], scale: int, result: ImportedOptions) -> None:
    """The training patch in pixels of the network's input. Real-ESRGAN crops again, to the top level's `gt_size`."""
    for origin, enlarged in (
        ("datasets.train.lq_size", False),
        ("datasets.train.patch_size", False),
        ("gt_size", True),
        ("datasets.train.gt_size", True),
    ):
        value = _count(options.pop(origin, None))
        if value is None or "patch_size" in result.sections.get("data", {}):
            continue
        if enlarged and scale > 1 and value >= scale:
            text = (
                f"{origin} {value} is the enlarged patch: data.patch_size is {value // scale} (scale {scale})"
            )
            if value % scale:
                text += f", {value % scale} pixels less"
            result.messages.append(text)
            value //= scale
        result.put("data.patch_size", value, origin)
    patch, model = result.sections.get("data", {}).get("patch_size"), result.sections["model"]
    if model["net_type"] == "swinir" and patch and patch > model.get("img_size", 64):
        model["img_size"] = patch


def _map_precision(options: dict[str, Any], framework: str, result: ImportedOptions) -> None:
    amp, bf16 = bool(options.pop("use_amp", False)), False
    for key in ("amp_bf16", "bfloat16"):
        bf16 = bool(options.pop(key, False)) or bf16
    if amp:
        result.put("system.mixed_precision", "bf16" if bf16 else "fp16", "use_amp")
    channels_last = options.pop("use_channels_last", None)
    # traiNNer-redux takes the layout with mixed precision alone, where it is its default; neosr always takes it.
    if framework == NEOSR or (framework == TRAINNER and amp and channels_last is not False):
        result.put("system.channels_last", True, "use_channels_last")
    compiled = [bool(options.pop(key, False)) for key in ("use_compile", "compile")]
    if any(compiled):
        result.put("system.compile", True, "use_compile" if compiled[0] else "compile")
    if options.pop("deterministic", False):
        result.put("system.deterministic", True, "deterministic")


def _map_training(
    raw: dict[str, Any], options: dict[str, Any], framework: str, result: ImportedOptions
) -> None:
    train = raw.get("train")
    if not train:
        result.put("training.loss.type", "l1")
        result.put("training.ema_decay", 0.0)
        result.messages.append(
            "has no `train` section: it does not say how the network is trained; training is predicted with L1 and Adam"
        )
        return
    decay = number(options.pop("train.ema_decay", options.pop("train.ema", 0)))
    result.put(
        "training.ema_decay", max(decay or 0.0, 0.0), "train.ema" if "ema" in train else "train.ema_decay"
    )
    map_optimizer(train.get("optim_g"), result)
    _map_schedule(train.get("scheduler"), result)
    clip = options.pop("train.grad_clip", framework == NEOSR)
    norm = number(options.pop("train.grad_clip_max_norm", 1.0 if framework == NEOSR else 100.0))
    if clip and norm:
        result.put("training.gradient.clip_norm", norm, "train.grad_clip_max_norm")
    map_losses(train, result)
    named = ("optim_g", "optim_d", "scheduler", "losses")
    for key in list(options):
        parts = key.split(".")
        if parts[0] == "train" and len(parts) > 1 and (parts[1] in named or parts[1].endswith("_opt")):
            options.pop(key)


def _map_schedule(section: Any, result: ImportedOptions) -> None:
    if not isinstance(section, dict):
        result.put("training.scheduler.type", "none")
        return
    milestones = section.get("milestones")
    if str(section.get("type")).lower() == "multisteplr" and isinstance(milestones, list):
        steps = [_count(step) for step in milestones]
        if all(type(step) is int for step in steps) and steps != sorted(steps):
            # torch's scheduler looks each step up, in whatever order they stand.
            steps.sort()
            result.messages.append(f"train.scheduler.milestones: do not rise, and are taken as {steps}")
        result.put("training.scheduler.milestones", steps, "train.scheduler.milestones")
        if is_number(section.get("gamma")):
            result.put("training.scheduler.gamma", float(section["gamma"]), "train.scheduler.gamma")
        return
    result.put("training.scheduler.type", "none")
    result.messages.append(
        f"train.scheduler.type {section.get('type')} has no counterpart: the rate stays constant (no cost)"
    )


def _say_what_is_left(options: dict[str, Any], result: ImportedOptions) -> None:
    costs = [
        f"{path} ({what})"
        for path, what in _COSTS.items()
        if options.get(path) not in (None, False, 0, "", -1)
    ]
    if costs:
        result.messages.append(f"changes the cost of a step and is not in the prediction: {', '.join(costs)}")


def _count(value: Any) -> Any:
    """5e3 as 5000; anything else as it is, for the schema to check."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() else value
