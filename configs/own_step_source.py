"""The text of a user's own training step: found without importing anything, so that a profile knows an edit.

It is the step's file and every file that it imports, itself or by others, from its own folders: `import` statements
are read, wherever they stand. A module that is imported by a computed name is not in it, and no file that is no code.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from swinmr_profiling.configs.sections.training import TrainingSection

# What holds this project's rooms, none of which is a user's own.
_OURS = Path(__file__).resolve().parents[1]


def source_file(training: TrainingSection) -> Path | None:
    """The file of `training.step`: itself, or its module's in the folders that are searched; None where it is not."""
    if training.step is None:
        return None
    place = training.step.rpartition(":")[0]
    if place.endswith(".py"):
        file = Path(training.step_folder or ".") / Path(place).expanduser()
        return file if file.is_file() else None
    searched = [training.step_folder or ".", str(Path.cwd()), *filter(None, sys.path)]
    stems = [Path(folder).joinpath(*place.split(".")) for folder in searched]
    return next(_of_modules(stems), None)


def source_files(training: TrainingSection) -> dict[str, Path]:
    """The step's file, then what it imports, by the path below the folder where it is found; {} without a file."""
    first = source_file(training)
    if first is None:
        return {}
    first = first.resolve()
    package = first.parent
    while (package / "__init__.py").is_file():
        package = package.parent
    searched = dict.fromkeys(
        folder.resolve() for folder in (package, Path(training.step_folder or "."), Path.cwd(), first.parent)
    )
    folders = [folder for folder in searched if folder != _OURS]
    found: dict[Path, str] = {}
    waiting = [(first.name, first)]
    while waiting:
        name, file = waiting.pop()
        if file in found:
            continue
        found[file] = name
        for module, level in _imported(file):
            waiting += _files_of(module, [file.parents[level - 1]] if level else folders, folders)
    return {name: file for file, name in found.items()}


def source_sha256(training: TrainingSection) -> str | None:
    """SHA-256 of the files' bytes: of one file its own, of several that of each with its name; None without a file.

    None too where one cannot be read.
    """
    try:
        files = source_files(training)
        digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    except OSError:
        return None
    if len(digests) < 2:
        return next(iter(digests.values()), None)
    return hashlib.sha256(
        "\n".join(f"{name} {digests[name]}" for name in sorted(digests)).encode()
    ).hexdigest()


def _imported(file: Path) -> Iterator[tuple[str, int]]:
    """Each dotted name that a file imports, and how many dots stand before it."""
    try:
        statements = ast.walk(ast.parse(file.read_bytes()))
    except (SyntaxError, ValueError, RecursionError):
        return  # it cannot be imported either
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from ((one.name, 0) for one in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            # What is imported from a package may be a module of it.
            for name in (module, *(f"{module}.{one.name}".strip(".") for one in statement.names)):
                yield name, statement.level


def _files_of(module: str, folders: list[Path], roots: list[Path]) -> list[tuple[str, Path]]:
    """The files that an import of a module runs: its packages' and its own, of the first folder that has them."""
    parts = [part for part in module.split(".") if part]
    for folder in folders:
        stems = [folder.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
        if folder not in roots:  # the package that a relative import begins with
            stems.insert(0, folder)
        files = [file.resolve() for file in _of_modules(stems)]
        if files:
            return [(_below(file, roots), file) for file in files]
    return []


def _of_modules(stems: Iterable[Path]) -> Iterator[Path]:
    """The files there are of packages and modules, by their paths without an ending."""
    candidates = ((stem / "__init__.py", stem.with_name(f"{stem.name}.py")) for stem in stems)
    return filter(Path.is_file, chain.from_iterable(candidates))


def _below(file: Path, roots: list[Path]) -> str:
    """A file's path below the innermost folder that holds it, the same wherever that folder lies."""
    holding = [root for root in roots if file.is_relative_to(root)]
    nearest = max(holding, key=lambda root: len(root.parts), default=file.parent)
    return file.relative_to(nearest).as_posix()
