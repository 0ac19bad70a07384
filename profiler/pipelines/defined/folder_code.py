"""Python code in a pipeline folder: loading such a folder would run it, and it is refused instead.

Some releases of diffusers import a module that `model_index.json` names from the folder itself, others ask for
`trust_remote_code` first. What is refused here does not depend on the release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from swinmr_profiling.profiler.pipelines.errors import PipelineError

INDEX_NAME = "model_index.json"


def refuse_code(folder: Path) -> None:
    """Raises PipelineError for a folder whose index names Python code of its own, or cannot be read to tell."""
    try:
        index = json.loads((folder / INDEX_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(f"{folder / INDEX_NAME}: cannot be read: {type(error).__name__}") from error
    if not isinstance(index, dict):
        raise PipelineError(f"{folder / INDEX_NAME}: expected a JSON object")
    for what in _named_code(folder, index):
        raise PipelineError(
            f"{folder}: its {INDEX_NAME} names code ({what}), which loading would run: a folder of weights and configs "
            "alone can be used"
        )


def _named_code(folder: Path, index: dict[str, object]) -> Iterator[str]:
    kind = index.get("_class_name")
    if not isinstance(kind, str):  # [module, class] of a custom pipeline
        yield f"_class_name {json.dumps(kind)}"
    for name in ("custom_pipeline", "_custom_pipeline"):
        if name in index:
            yield f"{name} {json.dumps(index[name])}"
    for name, entry in index.items():
        if name.startswith("_") or not isinstance(entry, list) or not entry:
            continue
        module = entry[0]
        if module is None:
            continue
        if not isinstance(module, str) or not module.isidentifier():
            # diffusers imports "a.b" as it stands: any module of the machine.
            if not (isinstance(module, str) and module.startswith(("diffusers.", "transformers."))):
                yield f"{name} {json.dumps(entry)}"
            continue
        for place in (
            folder / name / f"{module}.py",
            folder / f"{module}.py",
            folder / module / "__init__.py",
        ):
            if place.is_file():
                yield str(place.relative_to(folder))
