"""What of a config decides the memory of training, as one hash: two configs with the same hash need the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import JsonValue

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.own_step_source import source_sha256
from swinmr_profiling.profiler.record.blocks.figures import Precision

# How weights are drawn and where a network's file lies is not a matter of memory.
NOT_MEMORY = ("init_type", "init_bn_type", "init_gain", "target_folder")
# Keys of the model section that came later: where they are not used, what a profile was named by stays as it was.
LATER_KEYS = ("inputs", "training_inputs", "cross_check_inputs", "text_tokens", "frames")
# Of sampling in validation. Beside the noisy image the first step holds nothing, the second the estimate and the noise
# of the first, and the third, which is not the last either, draws noise beside noise: all further ones are like it.
SAMPLING_STEPS_THAT_DIFFER = 3
# `true` is bf16 where supported, which every GPU of the list is or emulates.
PRECISIONS: dict[bool | str, Precision] = {
    False: "fp32",
    True: "bf16",
    "bf16": "bf16",
    "fp16": "fp16",
    "pure_bf16": "pure_bf16",
}


def memory_settings(config: ExperimentConfig) -> dict[str, JsonValue]:
    """The part of a config that changes memory, as plain JSON values.

    Of a training step of the user's own: its name, and a hash of the text of its file. Not in it: the batch size,
    paths, learning rates, seeds, lengths of schedules.
    """
    training, raw = config.training, config.model_dump(mode="json")
    model = {
        key: value
        for key, value in raw["model"].items()
        if key not in NOT_MEMORY and not (key in LATER_KEYS and value is None)
    }
    optimizer = training.optimizer
    settings: dict[str, Any] = {
        "model": model,
        "patch_hw": list(config.training_patch_hw) if config.training_patch_hw else None,
        "val_batch_size": config.data.val_batch_size,
        "loss": _without_weights(raw["training"]["loss"]),
        "optimizer": optimizer.type,
        "momentum": optimizer.type == "sgd" and optimizer.momentum != 0,
        "clips": training.gradient.clip_norm is not None,
        "precision": PRECISIONS[config.system.mixed_precision],
        "gradient_checkpointing": raw["training"]["gradient_checkpointing"],
        "ema": training.ema_decay > 0,
        "accumulates": training.accumulate > 1,
        "compile": config.system.compile,
        "channels_last": config.system.channels_last,
    }
    # Keys that are there only where they matter: what all other profiles were named by stays as it was.
    frequency = settings["loss"]["components"]["frequency"]
    if frequency["transform"] == "orthonormal" or not frequency["is_on"]:
        del frequency["transform"]
    if optimizer.type in ("adam", "sgd") and optimizer.weight_decay:
        settings["decays_in_gradients"] = True  # in a copy of them
    if (training.zero_grad, training.set_to_none) != ("after_step", True):
        settings["zero_grad"] = [training.zero_grad, training.set_to_none]
    if config.system.attention != "auto":
        settings["attention"] = config.system.attention
    if training.on_host:
        settings["on_host"] = sorted(training.on_host)
    if training.step is not None:
        settings["step"] = {
            "name": training.step.rpartition(":")[2],
            "source": source_sha256(training),
            "assume": dict(training.assume),
        }
    elif training.assume:
        settings["assume"] = dict(training.assume)
    if training.adversarial.weight:
        settings["adversarial"] = _adversarial(raw["training"]["adversarial"])
    if training.trainable is not None:
        settings["trainable"] = sorted(training.trainable)
    if training.lora is not None:
        settings["lora"] = {"rank": training.lora.rank, "targets": sorted(training.lora.targets)}
    if config.is_denoiser:
        settings["denoising"] = _denoising(config)
    return settings


def _adversarial(section: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A step with a discriminator, without its weight and where code lies; later keys where they are used."""
    left_out = {"weight", "target_folder", "command_line"}
    unused: dict[str, JsonValue] = {"order": "basicsr", "target": None, "kwargs": {}}
    return {k: v for k, v in section.items() if k not in left_out and not (k in unused and v == unused[k])}


def _denoising(config: ExperimentConfig) -> dict[str, JsonValue]:
    """What of a denoiser's training and validation changes memory.

    How strong guidance is does not, nor how many steps there are beyond those that differ. Samples of validation are
    one a slice, whatever `samples_per_slice`; weights of the loss are tensors of ones where there are none.
    """
    sampling, data = config.evaluation.sampling, config.data
    found: dict[str, JsonValue] = {"objective": config.training.diffusion.objective, "sampling": None}
    if sampling.validation_steps:
        coils = data.phantom.coils if data.resolved_source == "phantom" else None
        found["sampling"] = {
            "steps": min(sampling.validation_steps, SAMPLING_STEPS_THAT_DIFFER),
            "sampler": sampling.sampler,
            "is_guided": sampling.guidance != 1,
            "clip": sampling.clip,
            "data_consistency": sampling.data_consistency,
            "phantom_coils": coils if sampling.data_consistency else None,
        }
    return found


def _without_weights(loss: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Whether a part of the loss is there decides; how much it weighs and where its file lies does not."""
    result: dict[str, JsonValue] = {}
    for name, value in loss.items():
        if isinstance(value, dict):
            result[name] = _without_weights(value)
        elif name == "weight":
            result["is_on"] = bool(value)
        elif name not in ("layer_weights", "weights_file", "eps") and (name, value) != (
            "missing_weights",
            "skip",
        ):
            result[name] = value
    return result


def memory_fingerprint(config: ExperimentConfig) -> str:
    """SHA-256 of the canonical JSON of `memory_settings`, in hexadecimal."""
    return hashlib.sha256(canonical(memory_settings(config)).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
