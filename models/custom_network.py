"""The user's own network, imported from a config only when the user says that the config may run code."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.model_sections import CustomModelConfig
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, CallsWithInputs, InputSpec, Purpose, declared_call

# What holds this project's rooms: the top of a checkout, or the installed package.
OURS = Path(__file__).resolve().parent.parent
ROOMS = ("configs", "models", "profiler", "training", "scripts", "src")


def build_custom(config: ExperimentConfig, *, trust_config: bool) -> BuiltModel:
    """Imports `model.target` ("package.module:Class", "path/to/file.py:Class") and calls it with `model.kwargs`.

    Modules are looked for as Python does, then in `model.target_folder` and the working directory. A file is loaded as
    itself, whatever else has its name; what it imports is looked for in its folder too.
    Raises ModelError without trust_config (naming what would have run), and for whatever the import or the
    constructor raises, which is the user's code and shown as itself.
    """
    options = config.model_section(CustomModelConfig)
    if not trust_config:
        arguments = ", ".join(f"{key}={json.dumps(value)}" for key, value in options.kwargs.items())
        raise ModelError(
            f"model.target: this config would import and run {options.target}({arguments}); "
            "pass --trust-config to allow it"
        )
    module_name, _, class_name = options.target.rpartition(":")
    folders = [Path(options.target_folder).resolve(), Path.cwd().resolve()]
    file = None
    if module_name.endswith(".py"):
        file = (folders[0] / Path(module_name).expanduser()).resolve()
        if not file.is_file():
            raise ModelError(f"model.target: {file}: no such file")
        folders, module_name = _package_of(file)
    _look_in(folders, module_name)
    try:
        with _command_line(options):
            imported = _import_file(file, module_name) if file else importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        _refuse_hidden(folders, module_name)
        raise ModelError(f"model.target: cannot import {options.target}: {_one_line(error)}") from error
    if file is None:
        _refuse_hidden(folders, module_name)
    try:
        network_class = operator.attrgetter(class_name)(imported)
    except AttributeError as error:
        classes = [
            name
            for name, member in vars(imported).items()
            if isinstance(member, type)
            and issubclass(member, nn.Module)
            and member.__module__ == imported.__name__
        ]
        near = difflib.get_close_matches(class_name, classes, n=3, cutoff=0.5) or classes[:3]
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise ModelError(f"model.target: cannot import {options.target}: {_one_line(error)}{hint}") from error
    try:
        with _command_line(options):
            module = network_class(**options.kwargs)
    except (Exception, SystemExit) as error:
        raise ModelError(f"model.target: {options.target} raised {_one_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"model.target: {options.target} made a {type(module).__name__}, no torch.nn.Module")

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


@contextmanager
def _command_line(options: CustomModelConfig) -> Iterator[None]:
    """The user's code sees its own command line, if any, and never that of ours, whose options it would not know."""
    ours = sys.argv
    sys.argv = [options.target.rpartition(":")[0], *options.command_line]
    try:
        yield
    finally:
        sys.argv = ours


def _package_of(file: Path) -> tuple[list[Path], str]:
    """Where to look for what a file imports, and the module's name: dotted where the file is in a package."""
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return [folder, file.parent] if len(names) > 1 else [folder], ".".join(names)


def _import_file(file: Path, module_name: str) -> ModuleType:
    """The module of one file; that of another file with this name is left alone."""
    if "." in module_name:  # a package's own: its relative imports need the package
        found = importlib.util.find_spec(module_name)
        if found is not None and found.origin is not None and Path(found.origin).resolve() == file:
            return importlib.import_module(module_name)
    name = f"target_{file.stem}" if file.stem in sys.modules or not file.stem.isidentifier() else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # its name ends with .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


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
