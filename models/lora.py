"""Low-rank adapters (LoRA, Hu et al. 2021) by peft, in networks of every kind."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from importlib import import_module, util
from typing import Any

from torch import Tensor, nn

from swinmr_profiling.configs.sections.strategy import LoraSection
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.trained_parameters import matching_parameters

BASE = ".base_layer."
ADAPTER = ".lora_"


def add_adapters(module: nn.Module, section: LoraSection, trainable: Sequence[str] | None) -> None:
    """Puts an adapter on each target and freezes all else but the parameters that `trainable` names.

    Raises ModelError where peft is not installed, no layer is called like a target, or one is of a kind that peft has
    no adapter for.
    """
    if util.find_spec("peft") is None:
        raise ModelError("training.lora needs the package peft: pip install peft")
    kept = matching_parameters(module, trainable) if trainable is not None else []
    names = [name for name, _ in module.named_modules()]
    for target in section.targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            linear = sorted(
                {
                    name.rpartition(".")[2]
                    for name, child in module.named_modules()
                    if isinstance(child, nn.Linear)
                }
            )
            known = f"its linear layers are {', '.join(linear[:6])}" if linear else "it has no linear layer"
            raise ModelError(f"training.lora.targets: no layer's name ends with {target!r}; {known}")
    peft = import_module("peft")
    config = peft.LoraConfig(
        r=section.rank,
        lora_alpha=section.rank if section.alpha is None else section.alpha,
        target_modules=list(section.targets),
    )
    try:
        peft.inject_adapter_in_model(config, module)
    except (ValueError, NotImplementedError, TypeError) as error:
        raise ModelError(f"training.lora: {' '.join(str(error).split())[:300]}") from error
    for parameter in kept:
        parameter.requires_grad_(True)


def has_adapters(module: nn.Module) -> bool:
    """Whether the network's layers have adapters."""
    return any(ADAPTER in name for name, _ in module.named_parameters())


def with_adapters(module: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Weights of a network without adapters, for one that has them, which begin as they are made; others unchanged."""
    found = dict(state)
    if any(ADAPTER in name for name in found):
        return found
    for name, own in module.state_dict().items():
        plain = name.replace(BASE, ".")
        if ADAPTER in name:
            found[name] = own
        elif plain != name and plain in found:
            found[name] = found.pop(plain)
    return found


def merged_state(module: nn.Module) -> dict[str, Tensor]:
    """The state dict of the network that computes the same without adapters, under its own names. A copy."""
    merged = copy.deepcopy(module)
    layer = import_module("peft.tuners.tuners_utils").BaseTunerLayer
    for part in merged.modules():
        if isinstance(part, layer):
            part.merge()
    return {
        name.replace(BASE, "."): tensor for name, tensor in merged.state_dict().items() if ADAPTER not in name
    }
