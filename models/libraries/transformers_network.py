"""Any model class of the transformers package, with random weights: nothing is downloaded.

The class is named, or read from a folder's config.json; what it takes is its main input, of its own size, unless
`model.inputs` describes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.configs.sections.model import TransformersModelConfig
from swinmr_profiling.models.errors import ModelError, refuse_unknown
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.libraries.model_classes import MAX_TEXT, class_named, package

# Tokens of a text whose length nobody says.
DEFAULT_TOKENS = 128
TOKENS, PIXELS = "input_ids", "pixel_values"


class TransformersNetwork(nn.Module):
    """Calls a transformers model with inputs by name and returns its first tensor; `names` are those of the inputs."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Inputs in the order of `names`, each with the batch in front."""
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]


def build_transformers(config: ExperimentConfig) -> BuiltModel:
    """The class `model.class`, or the one that `model.folder` names, made with its settings.

    Raises ModelError without the package, for a class that it does not have or that is not a network, for settings that
    the class refuses, and for inputs that it needs and the config does not describe.
    """
    options = config.model_section(TransformersModelConfig)
    transformers = package("transformers", "diffusion")
    settings, named = _settings_of_folder(options.folder)
    settings.update(options.config)
    name = getattr(options, "class") or named
    if name is None:
        raise ModelError(f"model.class: {options.folder}/config.json names no class (architectures): give it")
    network_class = class_named(transformers, name, "BertModel")
    config_class = getattr(network_class, "config_class", None)
    if config_class is None:
        raise ModelError(f"model.class: {name} has no configuration of its own: name a class of one model")
    try:
        made = config_class(**settings)
        module = network_class(made)
    except Exception as error:  # constructors raise whatever their settings run into
        raise ModelError(f"model.config: {name} refuses it: {one_line(error, MAX_TEXT)}") from error
    if config.training.network_checkpointing != "none":
        if not getattr(module, "supports_gradient_checkpointing", False):
            raise ModelError(f'training.gradient_checkpointing: {name} cannot: set "none"')
        module.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = options.inputs or _own_inputs(network_class, made)
    refuse_unknown(
        inputs, network_class.forward, f"model.inputs: {network_class.__name__}.forward takes no '{{name}}'"
    )
    specs = tuple(
        InputSpec(tuple(shape), "int64" if key in options.int64_inputs else "float")
        for key, shape in inputs.items()
    )
    return BuiltModel(
        "transformers",
        TransformersNetwork(module, list(inputs)),
        {"inference": specs, "training": specs, "cross_check": specs},
    )


def _settings_of_folder(folder: str | None) -> tuple[dict[str, Any], str | None]:
    """What a folder's config.json says, and the class that it names. Nothing else in the folder is read."""
    if folder is None:
        return {}, None
    file = Path(folder) / "config.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"model.folder: {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"model.folder: {file}: is not JSON: {one_line(error, MAX_TEXT)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"model.folder: {file}: holds no settings")
    if content.get("auto_map"):
        raise ModelError(
            f"model.folder: {file} names code of its own (auto_map), which is not run: give that class by --module"
        )
    names = content.pop("architectures", None)
    named = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    for key in ("model_type", "transformers_version", "_name_or_path"):
        content.pop(key, None)
    return content, named


def _own_inputs(network_class: Any, made: Any) -> dict[str, list[int]]:
    """The main input of a class and its shape without the batch."""
    main = getattr(network_class, "main_input_name", TOKENS)
    if main == TOKENS:
        longest = getattr(made, "max_position_embeddings", None)
        length = min(DEFAULT_TOKENS, longest) if isinstance(longest, int) and longest > 0 else DEFAULT_TOKENS
        inputs = {TOKENS: [length]}
        if getattr(made, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = [length]
        return inputs
    size, channels = getattr(made, "image_size", None), getattr(made, "num_channels", None)
    if main == PIXELS and size is not None and isinstance(channels, int):
        return {PIXELS: [channels, *((size, size) if isinstance(size, int) else tuple(size))]}
    raise ModelError(
        f"model.inputs: {network_class.__name__} takes {main} and does not say how large: describe its shape without "
        f'the batch, {{"{main}": [...]}}'
    )
