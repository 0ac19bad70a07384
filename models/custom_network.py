"""The user's own network, imported from a config only when the user says that the config may run code."""

from __future__ import annotations

import importlib
import importlib.util
import json
import operator
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.model_sections import CustomModelConfig
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, CallsWithInputs, InputSpec, Purpose, declared_call

# What holds this project's rooms: the top of a checkout, or the installed package.
OURS = Path(__file__).resolve().parent.parent
ROOMS = ("configs", "models", "profiler", "training", "scripts", "src")


def build_custom(config: ExperimentConfig, *, trust_config: bool) -> BuiltModel:
    """Imports `model.target` ("package.module:Class") and calls it with `model.kwargs`.

    Modules are looked for as Python does, then in `model.target_folder` and the working directory.
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
    folders = [Path(options.target_folder).resolve(), Path.cwd().resolve()]
    _look_in(folders, module_name)
    try:
        network_class = operator.attrgetter(class_name)(importlib.import_module(module_name))
    except Exception as error:  # a module may raise anything while it is imported
        _refuse_hidden(folders, module_name)
        raise ModelError(
            f"model.target: cannot import {options.target}: {type(error).__name__}: {error}"
        ) from error
    _refuse_hidden(folders, module_name)
    try:
        module = network_class(**options.kwargs)
    except Exception as error:
        raise ModelError(f"model.target: {options.target} raised {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"model.target: {options.target} made a {type(module).__name__}, no torch.nn.Module")

    if options.inputs is not None:
        return _with_declared_inputs(module, options)

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


def _with_declared_inputs(module: nn.Module, options: CustomModelConfig) -> BuiltModel:
    """The network with what `inputs`, `training_inputs` and `cross_check_inputs` declare.

    Raises ModelError where these do not hold the same tensors in the same places.
    """
    inference, arguments = declared_call(options.inputs)
    inputs: dict[Purpose, tuple[InputSpec, ...]] = dict.fromkeys(
        ("inference", "training", "cross_check"), inference
    )
    for purpose, key in (("training", "training_inputs"), ("cross_check", "cross_check_inputs")):
        value = getattr(options, key)
        if value is not None:
            inputs[purpose], own = declared_call(value)
            if own != arguments or len(inputs[purpose]) != len(inference):
                raise ModelError(
                    f"model.{key}: other names or places than inputs has: the same, in other shapes"
                )
    called = module if arguments is None else CallsWithInputs(module, arguments)
    return BuiltModel("custom", called, inputs)


def _look_in(folders: list[Path], module_name: str) -> None:
    """Adds the folders to the end of sys.path, where functions of the user's network will look as well.

    This project's own folders are left out: its `models` must not stand for the user's. One of them comes in when it
    alone has the module's package: a user may keep a network at the top of the checkout.
    """
    sys.path.extend(str(folder) for folder in folders if not _is_ours(folder) and str(folder) not in sys.path)
    importlib.invalidate_caches()
    package = module_name.partition(".")[0]
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    for folder in folders:
        if PathFinder.find_spec(package, [str(folder)]) is not None:
            sys.path.append(str(folder))
            return


def _is_ours(folder: Path) -> bool:
    return folder == OURS or (folder.is_relative_to(OURS) and folder.relative_to(OURS).parts[0] in ROOMS)


def _refuse_hidden(folders: list[Path], module_name: str) -> None:
    """Raises ModelError where the folders hold the module and Python has found its package somewhere else."""
    package = sys.modules.get(module_name.partition(".")[0])
    places = getattr(package, "__path__", None) or [getattr(package, "__file__", None)]
    for folder in folders:
        stem = folder.joinpath(*module_name.split("."))
        file = next((f for f in (stem / "__init__.py", Path(f"{stem}.py")) if f.is_file()), None)
        if file is None or package is None:
            continue
        if not any(place and file.resolve().is_relative_to(Path(place).resolve()) for place in places):
            raise ModelError(
                f"model.target: {file} is hidden by another {package.__name__} that Python finds first, in "
                f"{places[0]}; rename one, or put {folder} on PYTHONPATH"
            )
        return
