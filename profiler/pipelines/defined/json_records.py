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
    """A run that was costed. memory: bytes, predicted."""

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
    components: list[ComponentRecord]
    memory: Mapping[str, str | int]


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

    Totals are of all calls of the pipeline within the block, figures of a step are their mean. Seconds and CUDA bytes
    are of a run that was not counted meanwhile, null where nobody took them.
    """

    model_id: str | None
    pipeline_calls: int
    macs_per_call: float
    by_operator: Mapping[str, int]
    softmax_macs: int
    denoiser_steps: int
    cuda_peak_allocated_bytes: int | None
    cuda_peak_reserved_bytes: int | None
    components_measured: list[MeasuredComponent]
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
