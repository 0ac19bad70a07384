"""Code of the user's own that a config names, imported only when the user says that the config may run code."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.models.errors import ModelError

# What holds this project's rooms: the top of a checkout, or the installed package.
OURS = Path(__file__).resolve().parents[2]
ROOMS = ("configs", "models", "profiler", "training", "scripts", "src")


def import_target(key: str, target: str, folder: str, command_line: Sequence[str] = ()) -> ModuleType:
    """The module of "package.module:Name" or "path/to/file.py:Name"; what a user runs stands behind it.

    Modules are looked for as Python does, then in the folder and the working directory. A file is loaded as itself,
    whatever else has its name; what it imports is looked for in its folder too.
    key: of the config, for messages. command_line: that the code sees.
    Raises ModelError for whatever the import raises.
    """
    module_name = target.rpartition(":")[0]
    folders = [Path(folder).resolve(), Path.cwd().resolve()]
    file = None
    if module_name.endswith(".py"):
        file = (folders[0] / Path(module_name).expanduser()).resolve()
        if not file.is_file():
            raise ModelError(f"{key}: {file}: no such file")
        folders, module_name = _package_of(file)
    _look_in(folders, module_name)
    try:
        with own_command_line(target, command_line):
            imported = _import_file(file, module_name) if file else importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        _refuse_hidden(key, folders, module_name)
        raise ModelError(f"{key}: cannot import {target}: {one_line(error)}") from error
    if file is None:
        _refuse_hidden(key, folders, module_name)
    return imported


def named_in(module: ModuleType, key: str, target: str, kind: type) -> Any:
    """What a target names in its module. kind: of the classes that a hint proposes. Raises ModelError."""
    try:
        return operator.attrgetter(target.rpartition(":")[2])(module)
    except AttributeError as error:
        classes = [
            name
            for name, member in vars(module).items()
            if isinstance(member, type) and issubclass(member, kind) and member.__module__ == module.__name__
        ]
        near = difflib.get_close_matches(target.rpartition(":")[2], classes, n=3, cutoff=0.5) or classes[:3]
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise ModelError(f"{key}: cannot import {target}: {one_line(error)}{hint}") from error


@contextmanager
def own_command_line(target: str, arguments: Sequence[str]) -> Iterator[None]:
    """The user's code sees its own command line, if any, and never that of ours, whose options it would not know."""
    ours = sys.argv
    sys.argv = [target.rpartition(":")[0], *arguments]
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


def _refuse_hidden(key: str, folders: list[Path], module_name: str) -> None:
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
                f"{key}: {file} is hidden by another {package.__name__} that Python finds first, in "
                f"{places[0]}; rename one, or put {folder} on PYTHONPATH"
            )
        return
