"""Packages that only reports need: tried before hours are spent measuring, asked for by name when missing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from swinmr_profiling.input_error import InputError

PACKAGES = {"jinja2": "Jinja2", "matplotlib": "matplotlib"}


class MissingPackageError(InputError):
    """A report was asked for whose packages are not installed; one line for the user."""


def require(modules: Sequence[str], purpose: str) -> None:
    """Raises MissingPackageError, which says how to install them, unless all these modules can be imported."""
    missing = [PACKAGES[module] for module in modules if not _can_be_imported(module)]
    if missing:
        names = " and ".join(missing)
        raise MissingPackageError(
            f'{purpose} needs {names}: pip install ".[report]", or pip install {" ".join(missing)}'
        )


def _can_be_imported(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
