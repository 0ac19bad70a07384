"""How a pipeline's cost grows with steps and with resolution, counted at every point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    PipelineCost,
    PipelineRequest,
    RefusedSide,
    SidePoint,
    StepPoint,
)
from swinmr_profiling.profiler.pipelines.defined.definition import PipelineDefinition
from swinmr_profiling.profiler.pipelines.errors import PipelineError

STEPS = (10, 20, 30, 40, 50)
SIDES_PX = (512, 640, 768, 896, 1024)


def step_scaling(
    definition: PipelineDefinition,
    request: PipelineRequest,
    counts: ComponentCounts,
    steps: Sequence[int] = STEPS,
) -> list[StepPoint]:
    """MACs of a run by its steps: a straight line in the denoiser's calls, above what runs once."""
    costs = [cost_pipeline(definition, replace(request, steps=number), counts) for number in steps]
    return [
        StepPoint(number, cost.denoiser.calls, cost.macs, cost.macs / costs[0].macs)
        for number, cost in zip(steps, costs, strict=True)
    ]


def resolution_scaling(
    definition: PipelineDefinition,
    request: PipelineRequest,
    counts: ComponentCounts,
    sides_px: Sequence[int] = SIDES_PX,
) -> list[SidePoint | RefusedSide]:
    """MACs of square images by their side; attention apart, whose share grows. A side that is refused is said."""
    points: list[SidePoint | RefusedSide] = []
    first: PipelineCost | None = None
    for side in sides_px:
        try:
            cost = cost_pipeline(definition, replace(request, height=side, width=side), counts)
        except PipelineError as error:
            points.append(RefusedSide(side, str(error)))
            continue
        first = cost if first is None else first
        kinds = cost.denoiser.by_kind
        points.append(
            SidePoint(
                side_px=side,
                computed_px=[cost.geometry.computed_height, cost.geometry.computed_width],
                macs_per_step=cost.macs_per_step,
                total_macs=cost.macs,
                relative=cost.macs / first.macs,
                denoiser_attention_share=kinds["attention"] / sum(kinds.values()),
                activation_peak_bytes=cost.activation_peak.activation_peak_bytes,
            )
        )
    return points
