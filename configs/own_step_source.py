"""The text of a user's own training step: found without importing anything, so that a profile knows an edit."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from swinmr_profiling.configs.sections.training import TrainingSection


def source_file(training: TrainingSection) -> Path | None:
    """The file of `training.step`: itself, or its module's in the folders that are searched; None where it is not."""
    if training.step is None:
        return None
    place = training.step.rpartition(":")[0]
    if place.endswith(".py"):
        file = Path(training.step_folder or ".") / Path(place).expanduser()
        return file if file.is_file() else None
    folders = [training.step_folder or ".", str(Path.cwd()), *filter(None, sys.path)]
    for folder in folders:
        stem = Path(folder).joinpath(*place.split("."))
        for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if file.is_file():
                return file
    return None


def source_sha256(training: TrainingSection) -> str | None:
    """SHA-256 of that file's bytes; None where there is none that can be read."""
    file = source_file(training)
    try:
        return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None
