"""The user's own network, imported from a config only when the user says that the config may run code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.configs.sections.model import CustomModelConfig
from swinmr_profiling.models.custom.users_code import import_target, named_in, own_command_line
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, CallsWithInputs, InputSpec, Purpose, declared_call

TARGET = "model.target"


def build_custom(config: ExperimentConfig, *, trust_config: bool) -> BuiltModel:
    """Imports `model.target` ("package.module:Class", "path/to/file.py:Class") and calls it with `model.kwargs`.

    Raises ModelError without trust_config (naming what would have run), and for whatever the import or the
    constructor raises, which is the user's code and shown as itself.
    """
    options = config.model_section(CustomModelConfig)
    module = users_network(
        TARGET,
        options.target,
        options.target_folder,
        options.kwargs,
        options.command_line,
        trust_config=trust_config,
    )
    if options.inputs is not None:
        return _with_declared_inputs(module, options)

    def specs(shapes: list[list[int]]) -> tuple[InputSpec, ...]:
        kinds = options.input_dtypes or ["float"] * len(shapes)
        return tuple(InputSpec(tuple(shape), kind) for shape, kind in zip(shapes, kinds, strict=True))

    assert options.input_shapes is not None  # a section has these or inputs
    inference = specs(options.input_shapes)
    training, cross_check = options.training_input_shapes, options.cross_check_input_shapes
    return BuiltModel(
        net_type="custom",
        module=module,
        inputs={
            "inference": inference,
            "training": specs(training) if training else inference,
            "cross_check": specs(cross_check) if cross_check else inference,
        },
    )


def users_network(
    key: str,
    target: str,
    folder: str,
    kwargs: dict[str, Any],
    command_line: Sequence[str],
    *,
    trust_config: bool,
) -> nn.Module:
    """What a target, called with its arguments, makes. key: of the config, for messages. Raises ModelError."""
    if not trust_config:
        arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in kwargs.items())
        raise ModelError(
            f"{key}: this config would import and run {target}({arguments}); pass --trust-config to allow it"
        )
    imported = import_target(key, target, folder, command_line)
    network_class = named_in(imported, key, target, nn.Module)
    try:
        with own_command_line(target, command_line):
            module = network_class(**kwargs)
    except (Exception, SystemExit) as error:
        raise ModelError(f"{key}: {target} raised {one_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"{key}: {target} made a {type(module).__name__}, no torch.nn.Module")
    return module


def _with_declared_inputs(module: nn.Module, options: CustomModelConfig) -> BuiltModel:
    """The network with what `inputs`, `training_inputs` and `cross_check_inputs` declare.

    Raises ModelError where these do not hold the same tensors in the same places.
    """
    assert options.inputs is not None
    inference, arguments = declared_call(options.inputs)
    inputs: dict[Purpose, tuple[InputSpec, ...]] = dict.fromkeys(
        ("inference", "training", "cross_check"), inference
    )
    others: dict[Purpose, str] = {"training": "training_inputs", "cross_check": "cross_check_inputs"}
    for purpose, key in others.items():
        value = getattr(options, key)
        if value is not None:
            inputs[purpose], own = declared_call(value)
            if own != arguments or len(inputs[purpose]) != len(inference):
                raise ModelError(
                    f"model.{key}: other names or places than inputs has: the same, in other shapes"
                )
    called = module if arguments is None else CallsWithInputs(module, arguments)
    return BuiltModel("custom", called, inputs)
