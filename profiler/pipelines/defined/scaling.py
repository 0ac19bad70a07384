"""How a pipeline's cost grows with steps and with resolution, counted at every point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost import cost_pipeline
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineCost, PipelineRequest
from swinmr_profiling.profiler.pipelines.defined.definition import PipelineDefinition
from swinmr_profiling.profiler.pipelines.errors import PipelineError

STEPS = (10, 20, 30, 40, 50)
SIDES_PX = (512, 640, 768, 896, 1024)


def step_scaling(
    definition: PipelineDefinition,
    request: PipelineRequest,
    counts: ComponentCounts,
    steps: Sequence[int] = STEPS,
) -> list[dict[str, Any]]:
    """MACs of a run by its steps: a straight line in the denoiser's calls, above what runs once."""
    costs = [cost_pipeline(definition, replace(request, steps=number), counts) for number in steps]
    return [
        {
            "steps": cost.request.steps,
            "denoiser_calls": cost.of_role("denoiser")[0].calls,
            "total_macs": cost.macs,
            "relative": cost.macs / costs[0].macs,
        }
        for cost in costs
    ]


def resolution_scaling(
    definition: PipelineDefinition,
    request: PipelineRequest,
    counts: ComponentCounts,
    sides_px: Sequence[int] = SIDES_PX,
) -> list[dict[str, Any]]:
    """MACs of square images by their side; attention apart, whose share grows. A side that is refused is said."""
    points: list[dict[str, Any]] = []
    first: PipelineCost | None = None
    for side in sides_px:
        try:
            cost = cost_pipeline(definition, replace(request, height=side, width=side), counts)
        except PipelineError as error:
            points.append({"side_px": side, "reason": str(error)})
            continue
        first = cost if first is None else first
        kinds = cost.of_role("denoiser")[0].by_kind
        points.append(
            {
                "side_px": side,
                "computed_px": [cost.geometry.computed_height, cost.geometry.computed_width],
                "macs_per_step": cost.macs_per_step,
                "total_macs": cost.macs,
                "relative": cost.macs / first.macs,
                "denoiser_attention_share": kinds["attention"] / sum(kinds.values()),
                "activation_peak_bytes": cost.activation_peak.activation_peak_bytes,
            }
        )
    return points
