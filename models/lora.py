"""Low-rank adapters (LoRA, Hu et al. 2021) by peft, in networks of every kind."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
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
    _refuse_parts_of_attention(module, section.targets)
    try:
        peft.inject_adapter_in_model(config, module)
    except (ValueError, NotImplementedError, TypeError) as error:
        raise ModelError(f"training.lora: {' '.join(str(error).split())[:300]}") from error
    _leave_fused_layers(module)
    for parameter in kept:
        parameter.requires_grad_(True)


def _refuse_parts_of_attention(module: nn.Module, targets: Sequence[str]) -> None:
    """Raises ModelError for a target inside torch's MultiheadAttention, which reads its weights without calling it."""
    for name, attention in module.named_modules():
        if not isinstance(attention, nn.MultiheadAttention):
            continue
        for part, child in attention.named_modules(prefix=name):
            hit = next((t for t in targets if part == t or part.endswith(f".{t}")), None)
            if child is not attention and hit is not None:
                whole = name.rpartition(".")[2]
                raise ModelError(
                    f"training.lora.targets: {hit!r} names {part}, whose weights torch's MultiheadAttention reads "
                    "without calling it, so that an adapter there would do nothing: target the attention itself, "
                    f"{whole!r}"
                )


def _leave_fused_layers(module: nn.Module) -> None:
    """Has torch's TransformerEncoderLayers with adapters call their layers in evaluation, too.

    Their fused kernel (`torch._transformer_encoder_layer_fwd`) takes the layers' own weights, past the adapters; it is
    for activations that the layer knows to be ReLU or GELU.
    """
    fused = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.TransformerEncoderLayer) and has_adapters(layer)
    ]
    for layer in fused:
        layer.activation_relu_or_gelu = 0
    for encoder in module.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(layer in fused for layer in encoder.layers):
            encoder.use_nested_tensor = False  # which only the fused kernel takes


def adapted_layers(module: nn.Module, parameters: Collection[int]) -> list[str]:
    """Names of the layers whose adapters have one of these parameters (by id)."""
    names = [
        name.partition(ADAPTER)[0]
        for name, parameter in module.named_parameters()
        if ADAPTER in name and id(parameter) in parameters
    ]
    return list(dict.fromkeys(names))


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
