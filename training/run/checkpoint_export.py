"""Checkpoints as other programs load them: the official key names and tensors, in the wrapping that they look for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.writing.atomic_files import replacing
from swinmr_profiling.models.checkpoints.published_weights import unwrap_state_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.lora import has_adapters, merged_state
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.models.swin.official_state_dict import (
    official_size,
    official_state_dict,
    without_computed,
)
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.training.errors import first_line
from swinmr_profiling.training.run.checkpoints import CheckpointError, check_architecture, told_as_unwritable
from swinmr_profiling.training.run.resumption import config_of

WEIGHTS = ("ema", "trained")
SAFETENSORS = ".safetensors"
# What Lightning reads of a checkpoint beside the weights; the version only says which migrations to make: none.
LIGHTNING = {"pytorch-lightning_version": "2.0.0", "epoch": 0}


@dataclass(frozen=True)
class ExportRequest:
    """What is written.

    form: "wrapped" (`params`, and `params_ema` where there is a moving average), "plain" (the tensors alone), or
    "lightning" (`state_dict`, every name after `prefix`). A file named .safetensors holds the tensors alone.
    weights: "ema" or "trained", where one of the two is written; None for the moving average where there is one.
    """

    checkpoint: Path
    output: Path
    form: str = "wrapped"
    weights: str | None = None
    prefix: str = "model."
    trust_config: bool = False


def export_checkpoint(request: ExportRequest, config: ExperimentConfig | None = None) -> list[str]:
    """Writes the file and returns lines on what is in it: official names and tensors of a SwinIR, others' as they are.

    config: of the network; None for the one that a checkpoint of this project holds.
    Raises CheckpointError for what cannot be read, exported or written, ModelError for a network that cannot be built.
    """
    content = _read(request.checkpoint)
    config = config_of(content) if config is None else config
    if config is None:
        raise CheckpointError(
            f"{request.checkpoint} does not say what network it is of: name its config (--config)"
        )
    module = build_model(config, trust_config=request.trust_config).module
    sets: dict[str, dict[str, Tensor]] = {}
    for name, state in _weight_sets(content, request.checkpoint).items():
        check_architecture(module, {"params": state}, request.checkpoint)
        module.load_state_dict(without_computed(state, module.state_dict()))
        sets[name] = _copy(module)
    chosen = request.weights or ("ema" if "ema" in sets else "trained")
    if chosen not in sets:
        raise CheckpointError(
            f"{request.checkpoint} holds {' and '.join(sets)} weights alone: drop --weights"
        )
    single = request.output.suffix.lower() == SAFETENSORS or request.form != "wrapped"
    if single or request.weights:
        sets = {chosen: sets[chosen]}
    step = content["step"] if isinstance(content.get("step"), int) else 0
    _write(request, sets, step)
    words = " and the ".join({"trained": "trained", "ema": "averaged (EMA)"}[name] for name in sets)
    lines = [f"{len(sets[chosen])} tensors each: the {words} weights, step {step}"]
    if isinstance(module, SwinIR):
        lines += _notes(module)
    return lines


def _read(file: Path) -> Any:
    if file.suffix.lower() == SAFETENSORS:
        library = _safetensors()
        try:
            return library.load_file(file)
        except FileNotFoundError as error:
            raise CheckpointError(f"{file}: no such checkpoint") from error
        except Exception as error:  # the library's own errors are of a compiled module
            raise CheckpointError(f"{file} cannot be read: {first_line(error)}") from error
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: no such checkpoint") from error
    except Exception as error:  # torch.load raises half a dozen types for a file that is none of its own
        raise CheckpointError(
            f"{file} cannot be read as a checkpoint of tensors: {first_line(error)}"
        ) from error


def _safetensors() -> ModuleType:
    try:
        return importlib.import_module("safetensors.torch")
    except ImportError as error:
        raise CheckpointError(
            "a .safetensors file needs the package safetensors: pip install safetensors"
        ) from error


def _weight_sets(content: Any, file: Path) -> dict[str, dict[str, Tensor]]:
    """State dicts by what they are, "trained" and "ema"; a bare one is what it is, taken as "trained"."""
    sets = {}
    if isinstance(content, dict):
        for name, key in (("trained", "params"), ("ema", "params_ema")):
            if isinstance(content.get(key), dict):
                sets[name] = content[key]
    try:
        return {name: unwrap_state_dict(state) for name, state in (sets or {"trained": content}).items()}
    except ModelError as error:
        raise CheckpointError(f"{file}: {error}") from error


def _copy(module: nn.Module) -> dict[str, Tensor]:
    """The official state dict, the module's own tensors copied: the next weights are loaded into the same module."""
    if has_adapters(module):  # as a network without them, which every program loads
        return official_state_dict(module, merged_state(module))
    own = module.state_dict()
    state = official_state_dict(module)
    return {key: tensor.clone() if key in own else tensor for key, tensor in state.items()}


def _write(request: ExportRequest, sets: dict[str, dict[str, Tensor]], step: int) -> None:
    """Of two sets each stands under its own name, one alone is what is looked for first."""
    file = request.output
    first = next(iter(sets.values()))
    content: dict[str, Any] = {"params": first}
    if request.form == "lightning":
        named = {request.prefix + key: tensor for key, tensor in first.items()}
        content = {**LIGHTNING, "global_step": step, "state_dict": named}
    elif request.form == "plain":
        content = first
    elif len(sets) > 1:
        content = {"params": sets["trained"], "params_ema": sets["ema"]}
    with told_as_unwritable(file), replacing(file) as temporary:
        if file.suffix.lower() == SAFETENSORS:
            # This format knows no tensors that share memory: each block gets its own copy.
            tensors = {key: tensor.clone().contiguous() for key, tensor in first.items()}
            temporary.write_bytes(_safetensors().save(tensors, metadata={"format": "pt"}))
        else:
            with temporary.open("wb") as stream:
                torch.save(content, stream)


def _notes(module: SwinIR) -> list[str]:
    """What whoever loads the file must know: sizes, and what programs that guess the options guess otherwise."""
    height, width = official_size(module)
    lines = [f"for an official network built with img_size {height if height == width else (height, width)}"]
    if (height, width) != module.image_hw:
        lines.append(
            f"(img_size {module.image_hw[0]} x {module.image_hw[1]} is not a whole number of windows)"
        )
    first = module.blocks()[0]
    guessed_range = 255.0 if module.window_size == 7 else 1.0  # of the JPEG models, as spandrel takes it
    other = {
        "a square img_size": height != width,
        f"img_range {guessed_range:g}": module.img_range != guessed_range,
        "qkv_bias": first.attn.qkv.bias is None,
        "patch_norm": module.patch_embed.norm is None,
        "no absolute position embedding": module.absolute_pos_embed is not None,
    }
    assumed = [name for name, differs in other.items() if differs]
    if assumed:
        lines.append(
            f"spandrel assumes {', '.join(assumed)}, and this network is otherwise: give it the options"
        )
    return lines
