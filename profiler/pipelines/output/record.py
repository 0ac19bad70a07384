"""A cost as JSON, under the key names that users of compute profilers for pipelines read, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.writing.atomic_files import table_text, write_text
from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    AnyPipeline,
    ComponentCost,
    CostedPipeline,
    FailedPipeline,
    MeasuredPipeline,
    PipelineCost,
)
from swinmr_profiling.profiler.pipelines.defined.json_records import (
    ComponentRecord,
    CostRecord,
    FailedRecord,
    FileRecord,
    MeasuredOnlyRecord,
    ResultsRecord,
    WorkFigures,
)
from swinmr_profiling.profiler.pipelines.output.figures import flops_text, macs_text, parameters_text

SCHEMA_VERSION = 1
# Of the table for spreadsheets.
RUN_COLUMNS = (
    *("pipeline", "num_inference_steps", "scheduler", "guidance_scale", "is_guided", "batch", "precision"),
    "total_macs",
)
COMPONENT_COLUMNS = (
    *("name", "role", "class", "parameters", "weight_bytes", "calls", "call_batch", "macs_per_call"),
    *("flops_per_call", "macs", "flops", "share", "activation_peak_bytes"),
)
KIND_COLUMNS = ("attention", "convolution", "linear")


def pipeline_record(pipeline: AnyPipeline) -> FileRecord | MeasuredOnlyRecord | FailedRecord:
    """One pipeline of the file: its cost with what was asked for beside it, its run alone, or why there is neither."""
    if isinstance(pipeline, MeasuredPipeline):
        return {
            "enabled": True,
            "source": "measured",
            "pipeline": pipeline.name,
            "reason": pipeline.reason,
            "measured": pipeline.measured,
        }
    if isinstance(pipeline, FailedPipeline):
        return {"enabled": False, "pipeline": pipeline.name, "reason": pipeline.reason}
    record: FileRecord = {**cost_record(pipeline.cost)}
    if pipeline.step_scaling is not None:
        record["step_scaling"] = [asdict(point) for point in pipeline.step_scaling]
    if pipeline.resolution_scaling is not None:
        record["resolution_scaling"] = [asdict(point) for point in pipeline.resolution_scaling]
    if pipeline.measured is not None:
        record["measured"] = pipeline.measured
    return record


def cost_record(cost: PipelineCost) -> CostRecord:
    """Everything known of a run; what was not measured is null.

    `total_macs` and `total_flops` are of all components and of the whole batch; `total_params` is of the
    denoiser, as those profilers have it, and `pipeline_params` of all.
    """
    definition, request, geometry = cost.definition, cost.request, cost.geometry
    denoiser = cost.denoiser
    text_macs, vae_macs = cost.macs_of("text_encoder"), cost.macs_of("vae_decode")
    return {
        "enabled": True,
        "source": "predicted",
        "pipeline": definition.name,
        "title": definition.title,
        "checkpoint": definition.checkpoint,
        "pipeline_class": definition.pipeline_class,
        "model_component": denoiser.name,
        "pipeline_params": cost.parameters,
        **work_figures(denoiser.parameters, cost.macs_per_step, cost.macs),
        "macs_per_image": cost.macs / request.batch,
        "macs_per_step_without_guidance": cost.macs_per_step_without_guidance,
        "macs_per_step_with_guidance": cost.macs_per_step_with_guidance,
        "by_kind": cost.by_kind,
        "num_inference_steps": request.steps,
        "scheduler": cost.scheduler,
        "denoiser_timesteps": cost.timesteps,
        "denoiser_calls": denoiser.calls,
        "guidance_scale": request.guidance_scale,
        "guidance_mode": definition.guidance,
        "is_guided": cost.is_guided,
        "batch": request.batch,
        "precision": request.precision,
        "prompt_tokens": request.prompt_tokens,
        "input_shape": [request.batch, 3, geometry.height, geometry.width],
        "computed_shape": [request.batch, 3, geometry.computed_height, geometry.computed_width],
        "latent_shape": cost.of_role("vae_decode")[0].input_shapes[0],
        "vae_scale_factor": geometry.vae_scale_factor,
        "unet_macs_per_step": cost.macs_per_step,
        "vae_macs": vae_macs,
        "text_encoder_macs": text_macs,
        "inference_time_seconds": None,
        "inference_time_str": None,
        "throughput_tflops": None,
        "components": [component_record(component, cost.macs) for component in cost.components],
        "memory": memory_record(cost),
        "summary": summary_record(cost.macs_per_step, text_macs, vae_macs, cost.macs, request.steps),
        "notes": list(cost.notes),
    }


def work_figures(parameters: int, macs_per_step: int, total_macs: int) -> WorkFigures:
    """The denoiser's parameters, MACs and FLOPs (2 x MACs) of a step and of the run, with their texts."""
    return {
        "total_params": parameters,
        "params_str": parameters_text(parameters),
        "macs_per_step": macs_per_step,
        "macs_per_step_str": macs_text(macs_per_step),
        "flops_per_step": 2 * macs_per_step,
        "flops_per_step_str": flops_text(2 * macs_per_step),
        "total_macs": total_macs,
        "total_macs_str": macs_text(total_macs),
        "total_flops": 2 * total_macs,
        "total_flops_str": flops_text(2 * total_macs),
    }


def summary_record(step: float, text: float, vae: float, total: float, steps: int) -> dict[str, float]:
    """The four figures of `summarize_macs`, in GMACs; "once" is all of a run's calls together."""
    return {
        "UNet per-step (GMACs)": step / 1e9,
        "Text encoder once (GMACs)": text / 1e9,
        "VAE decode once (GMACs)": vae / 1e9,
        f"Total {steps} steps (GMACs)": total / 1e9,
    }


def component_record(component: ComponentCost, total_macs: int) -> ComponentRecord:
    """One component; `share` is of the run's MACs."""
    return {
        "name": component.name,
        "role": component.role,
        "class": component.class_name,
        "parameters": component.parameters,
        "weight_bytes": component.weight_bytes,
        "calls": component.calls,
        "call_batch": component.call_batch,
        "input_shapes": component.input_shapes,
        "macs_per_call": component.macs_per_call,
        "flops_per_call": 2 * component.macs_per_call,
        "macs": component.macs,
        "flops": 2 * component.macs,
        "share": component.macs / total_macs,
        "by_kind_per_call": component.by_kind,
        "softmax_macs_per_call": component.softmax_macs_per_call,
        "activation_peak_bytes": component.activation_peak_bytes,
        "note": component.note,
    }


def memory_record(cost: PipelineCost) -> dict[str, str | int]:
    """Weights of all components at the precision, and the largest component's activations, bytes."""
    peak = cost.activation_peak
    return {
        "source": "predicted",
        "precision": cost.request.precision,
        "weight_bytes": cost.weight_bytes,
        "activation_peak_bytes": peak.activation_peak_bytes,
        "activation_peak_component": peak.name,
        "total_bytes": cost.memory_bytes,
        "assumes": "every component resident, attention by a fused kernel; without the CUDA context and workspaces",
    }


def results_record(pipelines: Iterable[AnyPipeline], command_line: Sequence[str]) -> ResultsRecord:
    """The whole file."""
    return {
        "schema_version": SCHEMA_VERSION,
        "convention": "a MAC is one multiply-add of a product or convolution, attention included; FLOPs = 2 x MACs",
        "command_line": list(command_line),
        "pipelines": [pipeline_record(one) for one in pipelines],
    }


def write_csv(pipelines: Iterable[AnyPipeline], file: Path) -> None:
    """A line for every component of every pipeline, for spreadsheets; pipelines that were not costed have none.

    Raises OSError for a file that cannot be written.
    """
    header = [
        *RUN_COLUMNS,
        "height",
        "width",
        *COMPONENT_COLUMNS,
        *(f"{kind}_macs_per_call" for kind in KIND_COLUMNS),
    ]
    rows = []
    for pipeline in pipelines:
        if isinstance(pipeline, CostedPipeline):
            record: Any = cost_record(pipeline.cost)
            for part in record["components"]:
                row = [*itemgetter(*RUN_COLUMNS)(record), *record["input_shape"][2:]]
                row += itemgetter(*COMPONENT_COLUMNS)(part)
                rows.append([*row, *(part["by_kind_per_call"][kind] for kind in KIND_COLUMNS)])
    write_text(file, table_text(header, rows))
