"""What one image costs in a pipeline: every component, how often it is called, and the sum."""

from __future__ import annotations

from dataclasses import replace

import torch

from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.cost_records import (
    ComponentCost,
    PipelineCost,
    PipelineRequest,
    ResolvedRequest,
    resolve_request,
)
from swinmr_profiling.profiler.pipelines.defined.definition import Component, PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.geometry import Geometry, resolve_geometry
from swinmr_profiling.profiler.pipelines.defined.inputs import DenoiserCall
from swinmr_profiling.profiler.pipelines.defined.measure import MeasuredCall
from swinmr_profiling.profiler.pipelines.defined.schedule import (
    count_timesteps,
    make_scheduler,
    replace_scheduler,
)


def cost_pipeline(
    definition: PipelineDefinition, asked: PipelineRequest, counts: ComponentCounts | None = None
) -> PipelineCost:
    """Counts every component of a run. Raises PipelineError for what cannot be built or is not taken."""
    request = resolve_request(definition, asked)
    dtype = PRECISIONS[request.precision]
    counts = ComponentCounts(dtype) if counts is None else counts
    if counts.dtype != dtype:
        raise ValueError(f"counts are for {counts.dtype}, the request is for {dtype}")
    scheduler = make_scheduler(definition.scheduler, definition.scheduler_config)
    if request.scheduler is not None:
        scheduler = replace_scheduler(scheduler, request.scheduler)
    timesteps = count_timesteps(scheduler, request.steps, definition.strength)
    geometry = _geometry(definition, request, counts)
    guided = _is_guided(definition, request)
    second_call = guided and definition.guidance != "doubled_batch"

    lengths = [encoder.lengths(request.prompt_tokens) for encoder in definition.text_encoders]
    call = DenoiserCall(
        request.batch,
        geometry.latent_height,
        geometry.latent_width,
        context_tokens=definition.extra_context_tokens + sum(length.context for length in lengths),
        image_height=geometry.computed_height,
        image_width=geometry.computed_width,
        real_tokens=definition.extra_context_tokens + sum(length.real for length in lengths),
    )
    doubled = replace(call, batch=2 * request.batch)
    is_doubled = guided and not second_call
    plain_count = counts.denoiser(definition.denoiser, call, memory=not is_doubled)
    plain = plain_count.count.macs
    with_guidance = {
        "doubled_batch": lambda: counts.denoiser(definition.denoiser, doubled, memory=is_doubled).count.macs,
        "two_calls": lambda: 2 * plain,
        "distilled": lambda: 2 * plain if request.true_cfg_scale > 1 else None,
    }[definition.guidance]()
    if is_doubled:
        denoiser_count, denoiser_batch = counts.denoiser(definition.denoiser, doubled), 2 * request.batch
    else:
        denoiser_count, denoiser_batch = plain_count, request.batch

    parts = [
        _component(
            *(denoiser_name(definition.denoiser), "denoiser", definition.denoiser, denoiser_count),
            *(timesteps * (2 if second_call else 1), denoiser_batch, dtype),
        ),
        *_text_encoders(definition, request, guided, counts, dtype),
        *_prior(definition, request, counts, dtype),
        *_image_parts(definition, request, geometry, counts, dtype),
    ]
    return PipelineCost(
        definition=definition,
        request=request,
        geometry=geometry,
        scheduler=type(scheduler).__name__,
        timesteps=timesteps,
        calls_per_timestep=2 if second_call else 1,
        is_guided=guided,
        macs_per_step=with_guidance if guided and with_guidance is not None else plain,
        macs_per_step_without_guidance=plain,
        macs_per_step_with_guidance=with_guidance,
        components=tuple(parts),
        notes=_notes(definition, request, geometry, timesteps, guided),
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


def _geometry(definition: PipelineDefinition, request: ResolvedRequest, counts: ComponentCounts) -> Geometry:
    factor = counts.vae_scale_factor(definition.vae)
    patch = counts.latent_patch(definition.denoiser)
    sample_size = definition.denoiser.config.get("sample_size")
    return resolve_geometry(definition, request.height, request.width, factor, patch, sample_size)


def _component(
    name: str,
    role: str,
    component: Component,
    measured: MeasuredCall,
    calls: int,
    batch: int,
    dtype: torch.dtype,
    *,
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


def _text_encoders(definition, request, guided, counts, dtype) -> list[ComponentCost]:
    costs = []
    # A prior has the text encoder, and a guidance scale of its own.
    encodes_empty = guided if definition.prior is None else definition.prior.default_guidance_scale > 1
    for encoder in definition.text_encoders:
        tokens = encoder.lengths(request.prompt_tokens).encoded
        second = (
            request.negative_prompt or definition.guidance == "distilled" or encoder.calls_with_guidance == 2
        )
        calls = 2 if encodes_empty and second else 1
        measured = counts.text(encoder, request.batch, tokens)
        costs.append(_component(encoder.name, "text_encoder", encoder, measured, calls, request.batch, dtype))
    return costs


def _prior(definition, request, counts, dtype) -> list[ComponentCost]:
    prior = definition.prior
    if prior is None:
        return []
    batch = 2 * request.batch if prior.default_guidance_scale > 1 else request.batch
    calls = count_timesteps(make_scheduler(prior.scheduler, prior.scheduler_config), prior.default_steps)
    measured = counts.denoiser(prior, DenoiserCall(batch, 1, 1, 0, 0, 0))
    return [_component("prior", "prior", prior, measured, calls, batch, dtype)]


def _image_parts(definition, request, geometry, counts, dtype) -> list[ComponentCost]:
    """What sees images: the VAE, an image encoder of the empty image, a safety checker."""
    batch, costs = request.batch, []
    if definition.image_encoder is not None and not request.negative_prompt:
        # One zero image, whatever the batch: its embedding is repeated.
        measured = counts.image(definition.image_encoder, 1)
        costs.append(
            _component("image_encoder", "image_encoder", definition.image_encoder, measured, 1, 1, dtype)
        )
    if definition.strength is not None:
        measured = counts.encode(definition.vae, batch, geometry.computed_height, geometry.computed_width)
        costs.append(
            _component(
                "vae_encode", "vae_encode", definition.vae, measured, 1, batch, dtype, counts_weights=False
            )
        )
    measured = counts.decode(definition.vae, batch, geometry.latent_height, geometry.latent_width)
    costs.append(_component("vae_decode", "vae_decode", definition.vae, measured, 1, batch, dtype))
    if definition.safety_checker is not None:
        measured = counts.image(definition.safety_checker, batch)
        costs.append(
            _component(
                "safety_checker", "safety_checker", definition.safety_checker, measured, 1, batch, dtype
            )
        )
    return costs


def _notes(definition, request, geometry, timesteps, guided) -> tuple[str, ...]:
    notes = [geometry.note] if geometry.note else []
    if timesteps != request.steps:
        notes.append(f"{request.steps} steps are {timesteps} denoiser times by the scheduler")
    if definition.guidance == "distilled" and not guided:
        notes.append("guidance is an input of this distilled denoiser, no second pass")
    if definition.denoiser.config.get("time_cond_proj_dim") is not None:
        notes.append("guidance is embedded with the time of this distilled denoiser, no second pass")
    if definition.guidance_needs_negative_prompt and guided:
        notes.append("guidance runs only when a negative prompt is given, which is assumed here")
    if definition.prior is not None:
        prior = definition.prior
        notes.append(f"the prior runs {prior.default_steps} steps at its own guidance scale")
    if definition.strength is not None:
        notes.append(
            f"image to image at strength {definition.strength:g}: the image is encoded, late steps run"
        )
    if request.prompt_tokens is not None and all(e.padding == "fixed" for e in definition.text_encoders):
        padded = max(encoder.tokens for encoder in definition.text_encoders)
        notes.append(
            f"every prompt is padded to {padded} tokens: {request.prompt_tokens} are encoded as these"
        )
    return tuple(notes + list(definition.notes))
