"""A diffusers pipeline from a local folder, and what is asked of every one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS, resolve_device
from swinmr_profiling.profiler.pipelines.defined.folder import index_without_code
from swinmr_profiling.profiler.pipelines.defined.libraries import require_library
from swinmr_profiling.profiler.pipelines.defined.schedule import replace_scheduler
from swinmr_profiling.profiler.pipelines.errors import PipelineError


@dataclass(frozen=True)
class GenerationSettings:
    """What is asked of every model; None leaves it to the pipeline.

    Attributes:
        seed: None or -1: a random one. scheduler: a diffusers class in place of its own, "DDIM".
        image: file of an image, for pipelines that start from one.
        enable_timing: run once more, unwatched, for seconds and memory.
    """

    prompt: str
    negative_prompt: str | None = None
    height: int | None = None
    width: int | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    seed: int | None = None
    enable_profiling: bool = True
    device: str = "auto"
    precision: str | None = None
    allow_download: bool = False
    scheduler: str | None = None
    image: str | None = None
    enable_timing: bool = False


def load_pipeline_object(model_id: str, settings: GenerationSettings) -> Any:
    """The diffusers pipeline of a local folder; of a hub name only where downloads are allowed.

    Raises PipelineError in one line for a name that is not a folder, or a folder that diffusers cannot load.
    """
    if not settings.allow_download and not Path(model_id).is_dir():
        raise PipelineError(
            f"model {model_id!r} is not a local folder: name one, or let it be fetched with --allow-download"
        )
    kind = require_library("diffusers").DiffusionPipeline
    dtype = PRECISIONS[settings.precision] if settings.precision else None
    try:
        # What was fetched is looked at before anything of it is loaded.
        folder = Path(model_id) if Path(model_id).is_dir() else Path(kind.download(model_id))
        index = index_without_code(folder)
        pipe = kind.from_pretrained(
            str(folder),
            torch_dtype=dtype,
            local_files_only=not settings.allow_download,
            # Components that a folder was saved without: diffusers wants to be told so again.
            **{name: None for name, entry in index.items() if entry == [None, None]},
        )
        pipe = pipe.to(resolve_device(settings.device))
        if settings.scheduler is not None:
            pipe.scheduler = replace_scheduler(pipe.scheduler, settings.scheduler)
        return pipe
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"model {model_id!r} cannot be loaded: {one_line(error)}") from error
