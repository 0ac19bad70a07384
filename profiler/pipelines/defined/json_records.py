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
    """One network of a run that was watched."""

    name: str
    calls: int
    macs: int
    softmax_macs: int
    seconds: float
    tflops_per_second: float | None
    enabled: bool
    reason: str | None


class WatchedRecord(TypedDict, total=False):
    """What a run that was watched says in the place of a prediction, and beside it; empty without one."""

    source: Literal["measured"]
    macs_per_step: int
    macs_per_step_str: str
    flops_per_step: int
    flops_per_step_str: str
    total_macs: int
    total_macs_str: str
    total_flops: int
    total_flops_str: str
    macs_per_image: float
    denoiser_calls: int
    unet_macs_per_step: int
    vae_macs: int
    text_encoder_macs: int
    predicted_total_macs: int
    by_kind: Mapping[str, int]
    softmax_macs: int
    components_measured: list[MeasuredComponent]
    seconds_per_denoiser_call: list[float]
    incomplete: Mapping[str, str]
    summary: Mapping[str, float]


class LiveRecord(CostRecord):
    """A pipeline with its networks; what is not required is there where a run was watched."""

    model_id: str | None
    inference_time_seconds_str: str | None
    device: str
    device_peak_tflops: float | None
    share_of_peak: float | None
    predicted_total_macs: NotRequired[int]
    softmax_macs: NotRequired[int]
    components_measured: NotRequired[list[MeasuredComponent]]
    seconds_per_denoiser_call: NotRequired[list[float]]
    incomplete: NotRequired[Mapping[str, str]]


class FileRecord(CostRecord):
    """One pipeline of the file that `profile_pipeline.py` writes."""

    step_scaling: NotRequired[list[object]]
    resolution_scaling: NotRequired[list[object]]
    measured: NotRequired[LiveRecord | FailedRecord]


class ResultsRecord(TypedDict):
    """The whole file."""

    schema_version: int
    convention: str
    command_line: list[str]
    pipelines: list[FileRecord | FailedRecord]
