"""Packages that only some data needs: imported when it is read, and asked for by name when missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from swinmr_profiling.training.errors import DataError

# What pip calls a module's package, where the names differ.
PACKAGES = {"PIL": "pillow", "mlflow": "mlflow-skinny"}
# Those that are in another extra than `train`.
EXTRAS = {"wandb": "loggers", "mlflow": "loggers"}


def require(module: str, purpose: str) -> ModuleType:
    """The imported module. Raises DataError, which says how to install it, when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        package, extra = PACKAGES.get(top, top), EXTRAS.get(top, "train")
        raise DataError(
            f'{purpose} needs the package {package}: pip install ".[{extra}]", or pip install {package}'
        ) from error
