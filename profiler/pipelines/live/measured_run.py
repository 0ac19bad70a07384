"""`profile_pipeline.py --measure`: loads a folder's weights, counts one run as it happens and times another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, WatchedRecord
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.call_arguments import call_arguments, given
from swinmr_profiling.profiler.pipelines.live.compute import (
    DEFAULT_GUIDANCE_SCALE,
    DEFAULT_SIDE_PX,
    DEFAULT_STEPS,
    create_profiler,
)
from swinmr_profiling.profiler.pipelines.live.loaded_pipeline import GenerationSettings, load_pipeline_object
from swinmr_profiling.profiler.pipelines.live.timed_run import timed_run

PROMPT = "a photo of a cat"
SEED = 0


def measured_run(folder: Path, request: PipelineRequest) -> WatchedRecord | FailedRecord:
    """The live profile of two generations with the weights of a folder; what is None is the pipeline's own.

    Raises PipelineError where diffusers cannot load the folder, or the pipeline refuses what is asked.
    """
    settings = GenerationSettings(
        PROMPT,
        height=request.height,
        width=request.width,
        num_inference_steps=request.steps,
        guidance_scale=request.guidance_scale,
        precision=request.precision,
        scheduler=request.scheduler,
    )
    pipe = load_pipeline_object(str(folder), settings)
    profiler = create_profiler()

    def arguments() -> dict[str, Any]:
        found = call_arguments(pipe, settings, SEED)
        if "prompt" in found and request.batch > 1:
            found["prompt"] = [PROMPT] * request.batch
        return found

    def run() -> None:
        try:
            pipe(**arguments())
        except (ValueError, TypeError, RuntimeError) as error:
            raise PipelineError(f"{folder}: the run failed: {one_line(error)}") from error

    with profiler.watch(pipe):
        run()
    timed = timed_run(pipe, run)
    shape = (request.batch, 3, request.height or DEFAULT_SIDE_PX, request.width or DEFAULT_SIDE_PX)
    steps = given(pipe, arguments(), "num_inference_steps", DEFAULT_STEPS)
    scale = given(pipe, arguments(), "guidance_scale", DEFAULT_GUIDANCE_SCALE)
    record = profiler.profile_pipeline(pipe, shape, steps, str(folder), scale, timed=timed)
    return record  # type: ignore[return-value]  # of a watched run
