"""The user's own network, imported from a config only when the user says that the config may run code."""

from __future__ import annotations

import importlib
import json
import operator
import sys
from pathlib import Path

from torch import nn

from configs import ExperimentConfig
from models.errors import ModelError
from models.inputs import BuiltModel, InputSpec


def build_custom(config: ExperimentConfig, *, trust_config: bool) -> BuiltModel:
    """Imports `model.target` ("package.module:Class") and calls it with `model.kwargs`.

    Modules are looked for as Python does, and then in the working directory.
    Raises ModelError without trust_config (naming what would have run), and for whatever the import or the
    constructor raises, which is the user's code and shown as itself.
    """
    options = config.model
    if not trust_config:
        arguments = ", ".join(f"{key}={json.dumps(value)}" for key, value in options.kwargs.items())
        raise ModelError(
            f"model.target: this config would import and run {options.target}({arguments}); "
            "pass --trust-config to allow it"
        )
    module_name, _, class_name = options.target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        network_class = operator.attrgetter(class_name)(importlib.import_module(module_name))
    except Exception as error:  # a module may raise anything while it is imported
        raise ModelError(
            f"model.target: cannot import {options.target}: {type(error).__name__}: {error}"
        ) from error
    try:
        module = network_class(**options.kwargs)
    except Exception as error:
        raise ModelError(f"model.target: {options.target} raised {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"model.target: {options.target} made a {type(module).__name__}, no torch.nn.Module")

    def specs(shapes: list[list[int]]) -> tuple[InputSpec, ...]:
        kinds = options.input_dtypes or ["float"] * len(shapes)
        return tuple(InputSpec(tuple(shape), kind) for shape, kind in zip(shapes, kinds, strict=True))

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
