"""Packages that only reports need: found before hours are spent measuring, imported when something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

PACKAGES = {"jinja2": "Jinja2", "matplotlib": "matplotlib"}


class MissingPackageError(ValueError):
    """A report was asked for whose packages are not installed; one line for the user."""


def require(modules: Sequence[str], purpose: str) -> None:
    """Raises MissingPackageError, which says how to install them, unless all these modules can be imported."""
    missing = [PACKAGES[module] for module in modules if find_spec(module) is None]
    if missing:
        names = " and ".join(missing)
        raise MissingPackageError(
            f'{purpose} needs {names}: pip install ".[report]", or pip install {" ".join(missing)}'
        )
