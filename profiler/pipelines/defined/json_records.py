"""The JSON of a pipeline's run, key by key; `output/record.py` and `live/live_record.py` fill it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from typing_extensions import NotRequired

# `class` is a key of the file, and a word that Python keeps for itself.
_Class = TypedDict("_Class", {"class": str})


class ComponentRecord(_Class):
    """One component; `share` is of the run's MACs."""

    name: str
    role: str
    parameters: int
    weight_bytes: int
    calls: int
    call_batch: int
    input_shapes: Sequence[Sequence[int]]
    macs_per_call: int
    flops_per_call: int
    macs: int
    flops: int
    share: float
    by_kind_per_call: Mapping[str, int]
    softmax_macs_per_call: int
    activation_peak_bytes: int
    note: str | None


class MemoryRecord(TypedDict):
    """Bytes, predicted."""

    source: Literal["predicted"]
    precision: str
    weight_bytes: int
    activation_peak_bytes: int
    activation_peak_component: str
    total_bytes: int
    assumes: str


class SizeFigures(TypedDict):
    """Parameters of the denoiser, and their text."""

    total_params: int
    params_str: str


class MacFigures(TypedDict):
    """MACs and FLOPs (2 x MACs) of a step and of the run, with their texts."""

    macs_per_step: int
    macs_per_step_str: str
    flops_per_step: int
    flops_per_step_str: str
    total_macs: int
    total_macs_str: str
    total_flops: int
    total_flops_str: str


class CostRecord(SizeFigures, MacFigures):
    """Everything known of a run; what was not measured is null."""

    enabled: Literal[True]
    source: Literal["predicted", "measured"]
    pipeline: str
    title: str
    checkpoint: str | None
    pipeline_class: str
    model_component: str
    pipeline_params: int
    macs_per_image: float
    macs_per_step_without_guidance: int
    macs_per_step_with_guidance: int | None
    by_kind: Mapping[str, int]
    num_inference_steps: int
    scheduler: str
    denoiser_timesteps: int
    denoiser_calls: int
    guidance_scale: float
    guidance_mode: str
    is_guided: bool
    batch: int
    precision: str
    prompt_tokens: int | None
    input_shape: list[int]
    computed_shape: list[int]
    latent_shape: Sequence[int]
    vae_scale_factor: int
    unet_macs_per_step: int
    vae_macs: int
    text_encoder_macs: int
    inference_time_seconds: float | None
    inference_time_str: str | None
    throughput_tflops: float | None
    components: list[ComponentRecord]
    memory: MemoryRecord
    summary: Mapping[str, float]
    notes: list[str]


class FailedRecord(TypedDict):
    """A pipeline, or a live run, of which nothing is known, and why."""

    enabled: Literal[False]
    reason: str
    pipeline: NotRequired[str]
    model_id: NotRequired[str | None]


class MeasuredComponent(TypedDict):
    """One network of a run that was watched; `reason` says what of it is missing, `note` how it was counted."""

    name: str
    calls: int
    macs: int
    softmax_macs: int
    by_kind: Mapping[str, int]
    enabled: bool
    reason: str | None
    note: str | None


class TimedRun(TypedDict):
    """A run that nobody watched; bytes are null without a CUDA device."""

    inference_time_seconds: float
    cuda_peak_allocated_bytes: int | None
    cuda_peak_reserved_bytes: int | None


class LivePrediction(TypedDict):
    """What a prediction says beside a run that was watched, or why there is none."""

    enabled: bool
    total_macs: int | None
    not_costed: list[str]
    reason: str | None


class SpeedRecord(TypedDict):
    """Seconds of a run that was not counted meanwhile, and what they make of the FLOPs; null where nobody took them."""

    inference_time_seconds: float | None
    inference_time_str: str | None
    inference_time_seconds_str: str | None
    throughput_tflops: float | None
    device: str
    device_peak_tflops: float | None
    share_of_peak: float | None
    cuda_peak_allocated_bytes: int | None
    cuda_peak_reserved_bytes: int | None


class WatchedRecord(SizeFigures, MacFigures, SpeedRecord):
    """A run that was watched, of any pipeline: nothing in it is predicted but what stands under `prediction`.

    Totals are of all calls of the pipeline within the block, figures of a step are their mean.
    """

    enabled: Literal[True]
    source: Literal["measured"]
    model_id: str | None
    pipeline: str
    pipeline_class: str
    model_component: str
    pipeline_params: int
    pipeline_calls: int
    macs_per_call: float
    macs_per_image: float
    by_kind: Mapping[str, int]
    by_operator: Mapping[str, int]
    softmax_macs: int
    num_inference_steps: int
    scheduler: str | None
    denoiser_steps: int
    denoiser_calls: int
    guidance_scale: float | None
    batch: int
    input_shape: list[int]
    latent_shape: list[int] | None
    unet_macs_per_step: int
    vae_macs: int
    text_encoder_macs: int
    components_measured: list[MeasuredComponent]
    never_called: list[str]
    incomplete: Mapping[str, str]
    partial: str | None
    watched_seconds: float | None
    operators: int
    counting_us_per_operator: float | None
    prediction: LivePrediction
    predicted_total_macs: int | None
    summary: Mapping[str, float]
    notes: list[str]


class PredictedRecord(CostRecord):
    """A live pipeline of which no run was watched."""

    model_id: str | None
    not_costed: list[str]
    inference_time_seconds_str: str | None
    device: str
    device_peak_tflops: float | None
    share_of_peak: float | None


LiveRecord = WatchedRecord | PredictedRecord


class MeasuredOnlyRecord(TypedDict):
    """A pipeline of the file that was run, and for which no prediction is written; `reason` says so."""

    enabled: Literal[True]
    source: Literal["measured"]
    pipeline: str
    reason: str
    measured: WatchedRecord


class FileRecord(CostRecord):
    """One pipeline of the file that `profile_pipeline.py` writes."""

    step_scaling: NotRequired[list[object]]
    resolution_scaling: NotRequired[list[object]]
    measured: NotRequired[WatchedRecord | FailedRecord]


class ResultsRecord(TypedDict):
    """The whole file."""

    schema_version: int
    convention: str
    command_line: list[str]
    pipelines: list[FileRecord | MeasuredOnlyRecord | FailedRecord]
