"""Packages that only some data needs: imported when it is read, and asked for by name when missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from swinmr_profiling.training.errors import DataError

# What pip calls a module's package, where the names differ.
PACKAGES = {"PIL": "pillow"}


def require(module: str, purpose: str) -> ModuleType:
    """The imported module. Raises DataError, which says how to install it, when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = PACKAGES.get(module.partition(".")[0], module.partition(".")[0])
        raise DataError(
            f'{purpose} needs the package {package}: pip install ".[train]", or pip install {package}'
        ) from error
