"""A class of networks that a package offers by name."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from torch import nn

from swinmr_profiling.configs.error_words import did_you_mean, one_line
from swinmr_profiling.models.errors import ModelError

# Characters of a package's own words.
MAX_TEXT = 200


def package(name: str, extra: str) -> ModuleType:
    """The package of a `net_type`, imported where it is asked for: this takes longer than torch itself.

    extra: ours, by which it is installed. Raises ModelError without the package.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            f'model.net_type: "{name}" needs the package {name}: pip install ".[{extra}]"'
        ) from error


def class_named(package: ModuleType, name: str, example: str) -> Any:
    """The class of networks of that name, for `model.class`. example: another name, for the message.

    Raises ModelError where there is none, where it is not a network, or where the package cannot import it.
    """
    title = package.__name__
    try:
        found = getattr(package, name, None)
    except Exception as error:  # both packages import a class when it is asked for, and others with it
        raise ModelError(f"model.class: {title} cannot import {name}: {one_line(error, MAX_TEXT)}") from error
    if found is None:
        hint = did_you_mean(name, dir(package), "", most=3)
        version = getattr(package, "__version__", "")
        raise ModelError(f"model.class: {title} {version} has no class {name!r}{hint and f': {hint}'}")
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ModelError(
            f"model.class: {name} of {title} is not a network: name a model class, such as {example}"
        )
    return found
