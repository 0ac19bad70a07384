"""diffusers and transformers, imported when a pipeline needs them: they are an optional extra."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from swinmr_profiling.profiler.pipelines.errors import PipelineError

EXTRA = 'pip install ".[diffusion]"'


def require_library(name: str) -> Any:
    """The imported package. Raises PipelineError that names the extra when it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PipelineError(
            f"diffusion pipelines need the package {name.partition('.')[0]}: {EXTRA}"
        ) from error


def find_class(class_path: str) -> type:
    """The class "diffusers.UNet2DConditionModel" or "transformers.CLIPTextModel" stands for.

    Raises PipelineError where the package is missing, or has no such class (with the nearest names).
    """
    package, _, name = class_path.rpartition(".")
    if package.partition(".")[0] not in ("diffusers", "transformers"):
        raise PipelineError(f"component class {class_path!r}: expected one of diffusers or transformers")
    library = require_library(package)
    try:
        found = getattr(library, name)
    except AttributeError:
        near = difflib.get_close_matches(name, dir(library), n=2)
        hint = f"; the nearest are {' and '.join(near)}" if near else ""
        version = getattr(library, "__version__", "")
        raise PipelineError(f"{package} {version} has no class {name}{hint}; a newer version may") from None
    except (ImportError, RuntimeError) as error:
        # Their lazy modules wrap whatever went wrong while importing.
        raise PipelineError(
            f"{class_path} cannot be imported: {str(error).splitlines()[0]}; {EXTRA}"
        ) from error
    if getattr(found, "_backends", None):
        # A placeholder that diffusers exports when a package it needs is not installed.
        raise PipelineError(f"{class_path} needs {', '.join(found._backends)}: {EXTRA}")
    return found
