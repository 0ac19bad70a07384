"""What the parts of a live pipeline are, found from the objects: their signatures and methods, not their names."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.devices import PRECISIONS
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.definition import Component, PipelineDefinition, Prior
from swinmr_profiling.profiler.pipelines.defined.folder import (
    generic_definition,
    match_text_encoders,
    template_for,
)
from swinmr_profiling.profiler.pipelines.defined.inputs import forward_parameters
from swinmr_profiling.profiler.pipelines.errors import PipelineError


@dataclass(frozen=True)
class Anatomy:
    """The networks of a pipeline by the attribute that holds them; `others` have none of these parts."""

    denoiser_name: str
    denoiser: nn.Module
    decoder_name: str
    decoder: nn.Module
    text_encoders: dict[str, nn.Module]
    priors: dict[str, nn.Module]
    others: dict[str, nn.Module]

    @property
    def all(self) -> dict[str, nn.Module]:
        """Every network."""
        return {
            self.denoiser_name: self.denoiser,
            **self.text_encoders,
            **self.priors,
            **self.others,
            self.decoder_name: self.decoder,
        }


def networks_of(pipe: Any) -> dict[str, nn.Module]:
    """Every network that a pipeline holds, by attribute; a compiled one as itself."""
    components = getattr(pipe, "components", None)
    if not isinstance(components, dict):
        components = {name: value for name, value in vars(pipe).items() if not name.startswith("_")}
    networks = {name: value for name, value in components.items() if isinstance(value, nn.Module)}
    return {name: getattr(module, "_orig_mod", module) for name, module in networks.items()}


def find_anatomy(pipe: Any) -> Anatomy:
    """Raises PipelineError where there is no denoiser or no decoder, or more than one that could be."""
    networks = networks_of(pipe)
    kinds: dict[str, dict[str, nn.Module]] = {
        k: {} for k in ("denoiser", "decoder", "text", "prior", "other")
    }
    for name, module in networks.items():
        kinds[_kind_of(module)][name] = module
    name = type(pipe).__name__
    for kind in ("denoiser", "decoder"):
        if not kinds[kind]:
            raise PipelineError(
                f"{name} holds no {kind} that is known by its signature: {', '.join(networks) or '-'}"
            )
        if len(kinds[kind]) > 1:
            raise PipelineError(
                f"{name} holds several {kind}s ({', '.join(kinds[kind])}): none can be called the one"
            )
    return Anatomy(
        *next(iter(kinds["denoiser"].items())),
        *next(iter(kinds["decoder"].items())),
        kinds["text"],
        kinds["prior"],
        kinds["other"],
    )


def _kind_of(module: nn.Module) -> str:
    parameters = forward_parameters(module)
    if callable(getattr(module, "decode", None)) and callable(getattr(module, "encode", None)):
        return "decoder"
    if "timestep" in parameters and "controlnet_cond" not in parameters:
        if "proj_embedding" in parameters:
            return "prior"
        if "sample" in parameters or "hidden_states" in parameters:
            return "denoiser"
    if "input_ids" in parameters and callable(getattr(module, "get_input_embeddings", None)):
        return "text"
    return "other"


def module_dtype(module: nn.Module) -> torch.dtype:
    """dtype of its floating-point parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def module_device(module: nn.Module) -> torch.device:
    """Device of its parameters."""
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def live_definition(pipe: Any, anatomy: Anatomy) -> tuple[PipelineDefinition, ComponentCounts]:
    """The pipeline as a definition, and counts that use copies of its own networks on the meta device.

    How guidance reaches the denoiser is the pipeline class's code. Where the class is not among the definitions,
    an argument `true_cfg_scale` tells that the guidance scale is an input; else twice the batch is assumed.
    """
    pipeline_class = type(pipe).__name__
    template = template_for(pipeline_class)
    base = template or generic_definition(pipeline_class)
    accepted = inspect.signature(type(pipe).__call__).parameters
    if template is None and "true_cfg_scale" in accepted:
        base = replace(base, guidance="distilled")
    found = {}
    for name, module in sorted(anatomy.text_encoders.items()):
        tokenizer = getattr(pipe, name.replace("text_encoder", "tokenizer"), None)
        found[name] = (_component(name, module), getattr(tokenizer, "model_max_length", None))
    encoders, extra_context = match_text_encoders(found, template)
    scheduler = pipe.scheduler
    definition = replace(
        base,
        name=pipeline_class,
        title=pipeline_class,
        checkpoint=str(getattr(pipe, "name_or_path", "") or ""),
        source="live pipeline",
        scheduler=type(scheduler).__name__,
        scheduler_config={k: v for k, v in dict(scheduler.config).items() if not k.startswith("_")},
        denoiser=_component(anatomy.denoiser_name, anatomy.denoiser),
        vae=_component(anatomy.decoder_name, anatomy.decoder),
        text_encoders=encoders,
        prior=_prior(anatomy, template),
        image_encoder=_image_encoder(anatomy, template),
        safety_checker=_safety_checker(anatomy),
        extra_context_tokens=extra_context,
        vae_scale_factor=None,
        notes=(),
    )
    networks = anatomy.all

    def copy_on_meta(component: Component, dtype: torch.dtype) -> nn.Module:
        copied, _ = copy_to(networks[component.class_path.partition(":")[0]], ())
        if hasattr(getattr(copied, "config", None), "_attn_implementation"):
            # As build_on_meta does, on the copy's own config.
            settings: Any = copied.config
            settings._attn_implementation = "eager"
        return nn.Module.to(copied, dtype).eval()

    dtype = module_dtype(anatomy.denoiser)
    # Quantized weights, float64: MACs are the same at any of the precisions that activations can have.
    return definition, ComponentCounts(dtype if dtype in PRECISIONS.values() else torch.float32, copy_on_meta)


def _component(name: str, module: nn.Module) -> Component:
    config = getattr(module, "config", {})
    config = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    return Component(f"{name}:{type(module).__module__}.{type(module).__name__}", config)


def _prior(anatomy: Anatomy, template: PipelineDefinition | None) -> Prior | None:
    if not anatomy.priors or template is None or template.prior is None:
        return None
    found = _component(*next(iter(anatomy.priors.items())))
    return replace(template.prior, class_path=found.class_path, config=found.config, parameters=None)


def _image_encoder(anatomy: Anatomy, template: PipelineDefinition | None) -> Component | None:
    """The one that text to image runs; an adapter's waits for an image."""
    if template is None or template.image_encoder is None:
        return None
    names = [name for name, module in anatomy.others.items() if "pixel_values" in forward_parameters(module)]
    return _component(names[0], anatomy.others[names[0]]) if names else None


def _safety_checker(anatomy: Anatomy) -> Component | None:
    for name, module in anatomy.others.items():
        if hasattr(module, "concept_embeds"):
            return _component(name, module)
    return None
