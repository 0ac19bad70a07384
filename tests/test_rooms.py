"""Imports between rooms run one way, and no folder is a drawer."""

import ast
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGE = "swinmr_profiling"
# Room of the profiler -> the rooms it may import, each with all that these may import. Where this is not the plain
# order record, counting, measure, isolation, prediction, run, the reason stands beside it.
PROFILER = {
    "record": set(),
    # The replay of CUDA's caching allocator is arithmetic on the order of allocations: whoever asks what a batch
    # needs (prediction, batch_size, reports) asks this one, from a trace or from a saved profile.
    "allocator": set(),
    "counting": {"record"},
    "measure": {"record", "counting"},
    "isolation": {"record", "counting", "measure", "allocator"},
    "prediction": {"record", "counting", "measure", "isolation", "allocator"},
    # A rank's step is the traced step, between engines of training/strategies.
    "ranks": {"record", "counting", "measure", "isolation", "prediction", "allocator"},
    "batch_size": {"record", "allocator"},
    # A live module's or a user's own step: what the commands do, from Python.
    "own_step": {"record", "counting", "prediction", "batch_size", "measure", "isolation", "allocator"},
    # Budgets are described by GPUs and shares of their memory.
    "options": {"batch_size", "record"},
    # Which settings fit a card: asks the prediction, and prints what it found.
    "plan": {
        "record",
        "counting",
        "prediction",
        "batch_size",
        "measure",
        "isolation",
        "allocator",
        "options",
        "reports",
    },
    # Which images fit a card: asks the prediction, and which tiles follow, of training/tiling.
    "largest_tile": {
        "record",
        "counting",
        "prediction",
        "batch_size",
        "measure",
        "isolation",
        "allocator",
        "options",
        "reports",
    },
    # Charts draw the memory of GPUs and ask batch_size what a batch needs: no second formula.
    "reports": {"record", "batch_size", "allocator"},
    # Whether two latencies differ is a question to measure's statistics of processes.
    "comparing": {"record", "reports", "options", "measure"},
}
BELOW_COMMANDS = set(PROFILER)
PROFILER |= dict.fromkeys(("run", "gpu_check", "pipelines"), BELOW_COMMANDS)
# The name that users of pipeline profilers import.
PROFILER["compute"] = {"pipelines"}

TRAINING = (
    "degradation",
    "data",
    "step",
    "strategies",
    "validation",
    "denoising",
    "run",
    "tiling",
    "evaluation",
    "setup",
)
TOP = {
    "configs": set(),
    "models": {"configs"},
    "training": {"configs", "models"},
    "profiler": {"configs", "models", "training"},
}
MAX_MODULES = 20


def modules(folder):
    return sorted((REPOSITORY / folder).rglob("*.py"))


def imported(file):
    """Dotted names below the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith(PACKAGE + "."):
                yield name.removeprefix(PACKAGE + ".")


def room_of(file, top):
    parts = file.relative_to(REPOSITORY / top).with_suffix("").parts
    return parts[0]


@pytest.mark.parametrize("top", TOP)
def test_folders_import_one_way(top):
    wrong = {
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file in modules(top)
        for name in imported(file)
        if (other := name.split(".")[0]) in TOP and other != top and other not in TOP[top]
    }
    assert wrong == set()


def test_rooms_of_the_profiler_import_one_way():
    wrong, seen = set(), set()
    for file in modules("profiler"):
        room = room_of(file, "profiler")
        seen.add(room)
        for name in imported(file):
            top, *inside = name.split(".")
            if (
                top == "profiler"
                and inside
                and inside[0] != room
                and inside[0] not in PROFILER.get(room, set())
            ):
                wrong.add(f"{file.relative_to(REPOSITORY)}: {name}")
    assert wrong == set()
    assert seen - {"__init__"} == set(PROFILER)


def test_rooms_of_training_import_one_way():
    wrong = set()
    for file in modules("training"):
        room = room_of(file, "training")
        for name in imported(file):
            top, *inside = name.split(".")
            if top != "training" or not inside or inside[0] not in TRAINING or room == inside[0]:
                continue
            if room not in TRAINING or TRAINING.index(inside[0]) > TRAINING.index(room):
                wrong.add(f"{file.relative_to(REPOSITORY)}: {name}")
    assert wrong == set()


def test_nothing_imports_a_command():
    commands = {file.stem for file in (REPOSITORY / "scripts").glob("*.py")} | {
        "train",
        "test",
        "validate_setup",
    }
    wrong = {
        f"{file}: {name}"
        for top in TOP
        for file in modules(top)
        for name in imported(file)
        if name in commands
    }
    assert wrong == set()


def test_the_profiler_has_no_loose_module():
    assert {file.name for file in (REPOSITORY / "profiler").glob("*.py")} == {"__init__.py", "compute.py"}


def test_no_folder_holds_more_than_twenty_modules():
    folders = [folder for top in TOP for folder in {file.parent for file in modules(top)}]
    crowded = {
        str(folder.relative_to(REPOSITORY)): count
        for folder in folders
        if (count := len([file for file in folder.glob("*.py") if file.name != "__init__.py"])) > MAX_MODULES
    }
    assert crowded == {}


def test_every_room_says_what_it_is_for():
    for top in TOP:
        for file in modules(top):
            if file.name == "__init__.py":
                assert ast.get_docstring(ast.parse(file.read_text())), file
    assert Path(REPOSITORY / "src" / PACKAGE).is_dir()
