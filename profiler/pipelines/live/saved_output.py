"""What a pipeline gives: told before anything is computed, and written as a file of its kind."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.writing.atomic_files import replacing
from swinmr_profiling.profiler.pipelines.errors import PipelineError

# Field of a pipeline's output -> the end of the file that it is written to.
KINDS = {"images": ".png", "frames": ".gif"}
FRAMES_PER_SECOND = 8


def output_kind(pipe: Any) -> str | None:
    """ "images" or "frames" by the output class beside the pipeline's own; None where that cannot be told.

    Raises PipelineError for a pipeline that gives neither: sound, embeddings for another pipeline.
    """
    base = getattr(sys.modules.get("diffusers.utils"), "BaseOutput", None)
    if base is None:
        return None
    for kind in type(pipe).__mro__:
        module = sys.modules.get(kind.__module__)
        # That of the base class has outputs of every kind.
        if module is None or "diffusers" not in kind.__module__ or kind.__module__.endswith("pipeline_utils"):
            continue
        outputs = [
            value
            for name, value in vars(module).items()
            if "Pipeline" in name and isinstance(value, type) and issubclass(value, base)
        ]
        known_fields = (dataclasses.fields(one) for one in outputs if dataclasses.is_dataclass(one))
        fields = {field.name for field in itertools.chain(*known_fields)}
        for known in KINDS:
            if known in fields:
                return known
        if fields:
            raise PipelineError(
                f"{type(pipe).__name__} gives no image and no video but {', '.join(sorted(fields))}: "
                "nothing here can save that"
            )
    return None


def first_output(result: Any, name: str) -> Any:
    """The first image, or the frames of the first video, of what a call returned. Raises PipelineError."""
    for field in KINDS:
        found = getattr(result, field, None)
        if found is not None and len(found):
            first = found[0]
            pictures = list(first) if field == "frames" and isinstance(first, (list, tuple)) else first
            if all(hasattr(one, "save") for one in (pictures if isinstance(pictures, list) else [pictures])):
                return pictures
    raise PipelineError(f"{name} returned no image and no video: {type(result).__name__}")


def save(output: Any, file: Path) -> None:
    """An image as PNG, frames as a moving GIF. Raises OutputError where the file cannot be written."""
    with replacing(file) as temporary:
        if not isinstance(output, list):
            output.save(temporary, format="PNG")
            return
        first, *others = output
        first.save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=others,
            duration=1000 // FRAMES_PER_SECOND,
            loop=0,
        )
