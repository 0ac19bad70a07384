"""`profile_pipeline.py --measure`: loads a folder's weights, generates once and times it."""

from __future__ import annotations

from pathlib import Path

from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord
from swinmr_profiling.profiler.pipelines.defined.schedule import replace_scheduler
from swinmr_profiling.profiler.pipelines.live.compute import create_profiler
from swinmr_profiling.profiler.pipelines.live.generation import (
    GenerationSettings,
    call_arguments,
    load_pipeline_object,
)

PROMPT = "a photo of a cat"
SEED = 0


def measured_run(folder: Path, cost: PipelineCost) -> LiveRecord | FailedRecord:
    """The live profile of one generation with the weights of a folder, at the sides and steps of its cost.

    Raises PipelineError where diffusers cannot load the folder.
    """
    request, height, width = cost.request, cost.geometry.height, cost.geometry.width
    settings = GenerationSettings(
        PROMPT,
        height=height,
        width=width,
        num_inference_steps=request.steps,
        guidance_scale=request.guidance_scale,
        seed=SEED,
        precision=request.precision,
    )
    pipe = load_pipeline_object(str(folder), settings)
    if request.scheduler is not None:
        pipe.scheduler = replace_scheduler(pipe.scheduler, request.scheduler)
    profiler = create_profiler()
    arguments = call_arguments(pipe, settings, SEED)
    arguments["prompt"] = [PROMPT] * request.batch
    with profiler.watch(pipe):
        pipe(**arguments)
    shape = (request.batch, 3, height, width)
    return profiler.profile_pipeline(
        pipe, shape, settings.num_inference_steps, str(folder), settings.guidance_scale
    )
