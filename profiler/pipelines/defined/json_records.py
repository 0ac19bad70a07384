"""The JSON of a pipeline's run, key by key; `output/record.py` and `live/live_record.py` fill it.

What stands in lists (components, networks, points of scaling) are dataclasses beside the counts, written as dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class WorkFigures(TypedDict):
    """Parameters of the denoiser, MACs and FLOPs (2 x MACs) of a step and of the run, each with its text."""

    total_params: int
    params_str: str
    macs_per_step: int
    macs_per_step_str: str
    flops_per_step: int
    flops_per_step_str: str
    total_macs: int
    total_macs_str: str
    total_flops: int
    total_flops_str: str


class RunFigures(WorkFigures):
    """What is told of every run, predicted or watched; what was not measured is null."""

    enabled: Literal[True]
    source: Literal["predicted", "measured"]
    pipeline: str
    pipeline_class: str
    model_component: str
    pipeline_params: int
    macs_per_image: float
    by_kind: Mapping[str, int]
    num_inference_steps: int
    scheduler: str | None
    denoiser_calls: int
    guidance_scale: float | None
    batch: int
    input_shape: list[int]
    latent_shape: Sequence[int] | None
    unet_macs_per_step: int
    vae_macs: int
    text_encoder_macs: int
    inference_time_seconds: float | None
    inference_time_str: str | None
    throughput_tflops: float | None
    summary: Mapping[str, float]
    notes: list[str]


class CostRecord(RunFigures):
    """A run that was costed. components: each ComponentCost. memory: bytes, predicted."""

    title: str
    checkpoint: str | None
    macs_per_step_without_guidance: int
    macs_per_step_with_guidance: int | None
    denoiser_timesteps: int
    guidance_mode: str
    is_guided: bool
    precision: str
    prompt_tokens: int | None
    computed_shape: list[int]
    vae_scale_factor: int
    components: list[dict[str, Any]]
    memory: Mapping[str, str | int]


class FailedRecord(TypedDict):
    """A live run of which nothing is known, and why."""

    enabled: Literal[False]
    reason: str
    model_id: str | None


class LivePrediction(TypedDict):
    """What a prediction says beside a run that was watched, or why there is none."""

    enabled: bool
    total_macs: int | None
    not_costed: list[str]
    reason: str | None


class DeviceFigures(TypedDict):
    """Where a live pipeline is, and what it makes of that device; null where no time was taken."""

    inference_time_seconds_str: str | None
    device: str
    device_peak_tflops: float | None
    share_of_peak: float | None


class WatchedRecord(RunFigures, DeviceFigures):
    """A run that was watched, of any pipeline: nothing in it is predicted but what stands under `prediction`.

    Totals are of all calls of the pipeline within the block, figures of a step are their mean. components_measured:
    each NetworkCount. Seconds and CUDA bytes are of a run that was not counted meanwhile, null where nobody took them.
    """

    model_id: str | None
    pipeline_calls: int
    macs_per_call: float
    by_operator: Mapping[str, int]
    softmax_macs: int
    denoiser_steps: int
    cuda_peak_allocated_bytes: int | None
    cuda_peak_reserved_bytes: int | None
    components_measured: list[dict[str, Any]]
    never_called: list[str]
    incomplete: Mapping[str, str]
    partial: str | None
    watched_seconds: float | None
    operators: int
    counting_us_per_operator: float | None
    prediction: LivePrediction
    predicted_total_macs: int | None


class PredictedRecord(CostRecord, DeviceFigures):
    """A live pipeline of which no run was watched."""

    model_id: str | None
    not_costed: list[str]


LiveRecord = WatchedRecord | PredictedRecord
