"""What one image costs in a pipeline: every component, how often it is called, the sum, and how that grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts, DenoiserCall
from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    ComponentCost,
    PipelineCost,
    PipelineRequest,
    RefusedSide,
    ResolvedRequest,
    SidePoint,
    StepPoint,
    resolve_request,
)
from swinmr_profiling.profiler.pipelines.defined.definition import Component, PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.geometry import Geometry, resolve_geometry
from swinmr_profiling.profiler.pipelines.defined.measure import MeasuredCall
from swinmr_profiling.profiler.pipelines.defined.schedule import (
    count_timesteps,
    make_scheduler,
    replace_scheduler,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError

STEPS = (10, 20, 30, 40, 50)
SIDES_PX = (512, 640, 768, 896, 1024)


def cost_pipeline(
    definition: PipelineDefinition, asked: PipelineRequest, counts: ComponentCounts
) -> PipelineCost:
    """Counts every component of a run. Raises PipelineError for what cannot be built or is not taken."""
    request = resolve_request(definition, asked)
    dtype = PRECISIONS[request.precision]
    if counts.dtype != dtype:
        raise ValueError(f"counts are for {counts.dtype}, the request is for {dtype}")
    scheduler = make_scheduler(definition.scheduler, definition.scheduler_config)
    if request.scheduler is not None:
        scheduler = replace_scheduler(scheduler, request.scheduler)
    timesteps = count_timesteps(scheduler, request.steps, definition.strength)
    geometry = resolve_geometry(
        *(definition, request.height, request.width),
        factor=counts.vae_scale_factor(definition.vae),
        patch=counts.latent_patch(definition.denoiser),
        sample_size=definition.denoiser.config.get("sample_size"),
    )
    guided = _is_guided(definition, request)
    is_doubled = guided and definition.guidance == "doubled_batch"

    lengths = [encoder.lengths(request.prompt_tokens) for encoder in definition.text_encoders]
    call = DenoiserCall(
        request.batch,
        geometry.latent_height,
        geometry.latent_width,
        context_tokens=definition.extra_context_tokens + sum(length.context for length in lengths),
        real_tokens=definition.extra_context_tokens + sum(length.real for length in lengths),
    )
    doubled = replace(call, batch=2 * request.batch)
    plain = counts.denoiser(definition.denoiser, call, memory=not is_doubled).count.macs
    with_guidance = {
        "doubled_batch": lambda: counts.denoiser(definition.denoiser, doubled, memory=is_doubled).count.macs,
        "two_calls": lambda: 2 * plain,
        "distilled": lambda: 2 * plain if request.true_cfg_scale > 1 else None,
    }[definition.guidance]()
    running = doubled if is_doubled else call
    parts = [
        _component(
            *(denoiser_name(definition.denoiser), "denoiser", definition.denoiser),
            *(counts.denoiser(definition.denoiser, running, memory=True), running.batch, dtype),
            calls=timesteps * (2 if guided and not is_doubled else 1),
        ),
        *_text_encoders(definition, request, guided, counts),
        *_prior(definition, request, counts),
        *_image_parts(definition, request, geometry, counts),
    ]
    return PipelineCost(
        definition=definition,
        request=request,
        geometry=geometry,
        scheduler=type(scheduler).__name__,
        timesteps=timesteps,
        is_guided=guided,
        macs_per_step=with_guidance if guided and with_guidance is not None else plain,
        macs_per_step_without_guidance=plain,
        macs_per_step_with_guidance=with_guidance,
        components=tuple(parts),
        notes=tuple(_notes(definition, request, geometry, timesteps, guided)),
    )


def denoiser_name(component: Component) -> str:
    """The attribute under which a pipeline holds its denoiser."""
    return "unet" if "UNet" in component.class_name else "transformer"


def _is_guided(definition: PipelineDefinition, request: ResolvedRequest) -> bool:
    if definition.guidance == "distilled":
        return request.true_cfg_scale > 1
    if definition.denoiser.config.get("time_cond_proj_dim") is not None:
        return False  # distilled as latent consistency models are: the scale is embedded with the time
    return request.guidance_scale > 1


def _component(
    name: str,
    role: str,
    component: Component,
    measured: MeasuredCall,
    batch: int,
    dtype: torch.dtype,
    *,
    calls: int = 1,
    counts_weights: bool = True,
) -> ComponentCost:
    count = measured.count
    return ComponentCost(
        name=name,
        role=role,
        class_name=component.class_name,
        parameters=count.parameters,
        weight_bytes=count.parameters * dtype.itemsize,
        calls=calls,
        call_batch=batch,
        macs_per_call=count.macs,
        by_kind=count.by_kind,
        softmax_macs_per_call=count.softmax_macs,
        activation_peak_bytes=measured.activation_peak_bytes,
        input_shapes=count.input_shapes,
        counts_weights=counts_weights,
        note=component.note,
    )


def _text_encoders(
    definition: PipelineDefinition, request: ResolvedRequest, guided: bool, counts: ComponentCounts
) -> Iterator[ComponentCost]:
    # A prior has the text encoder, and a guidance scale of its own.
    encodes_empty = guided if definition.prior is None else definition.prior.default_guidance_scale > 1
    always_second = request.negative_prompt or definition.guidance == "distilled"
    for encoder in definition.text_encoders:
        measured = counts.text(encoder, request.batch, encoder.lengths(request.prompt_tokens).encoded)
        calls = 2 if encodes_empty and (always_second or encoder.calls_with_guidance == 2) else 1
        yield _component(
            encoder.name, "text_encoder", encoder, measured, request.batch, counts.dtype, calls=calls
        )


def _prior(
    definition: PipelineDefinition, request: ResolvedRequest, counts: ComponentCounts
) -> Iterator[ComponentCost]:
    if (prior := definition.prior) is not None:
        batch = 2 * request.batch if prior.default_guidance_scale > 1 else request.batch
        calls = count_timesteps(make_scheduler(prior.scheduler, prior.scheduler_config), prior.default_steps)
        measured = counts.denoiser(prior, DenoiserCall(batch, 1, 1, 0), memory=True)
        yield _component("prior", "prior", prior, measured, batch, counts.dtype, calls=calls)


def _image_parts(
    definition: PipelineDefinition, request: ResolvedRequest, geometry: Geometry, counts: ComponentCounts
) -> Iterator[ComponentCost]:
    """What sees images: the VAE, an image encoder of the empty image, a safety checker."""
    batch, dtype = request.batch, counts.dtype
    if definition.image_encoder is not None and not request.negative_prompt:
        # One zero image, whatever the batch: its embedding is repeated.
        measured = counts.image(definition.image_encoder, 1)
        yield _component("image_encoder", "image_encoder", definition.image_encoder, measured, 1, dtype)
    if definition.strength is not None:
        measured = counts.encode(definition.vae, batch, geometry.computed_height, geometry.computed_width)
        yield _component(
            "vae_encode", "vae_encode", definition.vae, measured, batch, dtype, counts_weights=False
        )
    measured = counts.decode(definition.vae, batch, geometry.latent_height, geometry.latent_width)
    yield _component("vae_decode", "vae_decode", definition.vae, measured, batch, dtype)
    if definition.safety_checker is not None:
        measured = counts.image(definition.safety_checker, batch)
        yield _component(
            "safety_checker", "safety_checker", definition.safety_checker, measured, batch, dtype
        )


def _notes(
    definition: PipelineDefinition, request: ResolvedRequest, geometry: Geometry, timesteps: int, guided: bool
) -> Iterator[str]:
    if geometry.note:
        yield geometry.note
    if timesteps != request.steps:
        yield f"{request.steps} steps are {timesteps} denoiser times by the scheduler"
    if definition.guidance == "distilled" and not guided:
        yield "guidance is an input of this distilled denoiser, no second pass"
    if definition.denoiser.config.get("time_cond_proj_dim") is not None:
        yield "guidance is embedded with the time of this distilled denoiser, no second pass"
    if definition.guidance_needs_negative_prompt and guided:
        yield "guidance runs only when a negative prompt is given, which is assumed here"
    if definition.prior is not None:
        yield f"the prior runs {definition.prior.default_steps} steps at its own guidance scale"
    if definition.strength is not None:
        yield f"image to image at strength {definition.strength:g}: the image is encoded, late steps run"
    if request.prompt_tokens is not None and all(e.padding == "fixed" for e in definition.text_encoders):
        padded = max(encoder.tokens for encoder in definition.text_encoders)
        yield f"every prompt is padded to {padded} tokens: {request.prompt_tokens} are encoded as these"
    yield from definition.notes


def step_scaling(
    definition: PipelineDefinition,
    request: PipelineRequest,
    counts: ComponentCounts,
) -> list[StepPoint]:
    """MACs of a run by its steps: a straight line in the denoiser's calls, above what runs once."""
    costs = [cost_pipeline(definition, replace(request, steps=number), counts) for number in STEPS]
    return [
        StepPoint(number, cost.denoiser.calls, cost.macs, cost.macs / costs[0].macs)
        for number, cost in zip(STEPS, costs, strict=True)
    ]


def resolution_scaling(
    definition: PipelineDefinition,
    request: PipelineRequest,
    counts: ComponentCounts,
) -> Iterator[SidePoint | RefusedSide]:
    """MACs of square images by their side; attention apart, whose share grows. A side that is refused is said."""
    first: PipelineCost | None = None
    for side in SIDES_PX:
        try:
            cost = cost_pipeline(definition, replace(request, height=side, width=side), counts)
        except PipelineError as error:
            yield RefusedSide(side, str(error))
            continue
        first = cost if first is None else first
        kinds = cost.denoiser.by_kind
        yield SidePoint(
            side_px=side,
            computed_px=[cost.geometry.computed_height, cost.geometry.computed_width],
            macs_per_step=cost.macs_per_step,
            total_macs=cost.macs,
            relative=cost.macs / first.macs,
            denoiser_attention_share=kinds["attention"] / sum(kinds.values()),
            activation_peak_bytes=cost.activation_peak.activation_peak_bytes,
        )
