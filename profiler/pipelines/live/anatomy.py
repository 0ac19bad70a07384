"""What the parts of a live pipeline are, found from the objects: their signatures and methods, before their names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from swinmr_profiling.models.from_diffusers.denoiser import forward_parameters
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.pipelines.defined.component_counts import ComponentCounts
from swinmr_profiling.profiler.pipelines.defined.definition import Component, PipelineDefinition
from swinmr_profiling.profiler.pipelines.defined.folder import match_text_encoders, template_for
from swinmr_profiling.profiler.pipelines.errors import PipelineError

DENOISER_NAMES = ("transformer", "unet")


@dataclass(frozen=True)
class Anatomy:
    """The networks of a pipeline by the attribute that holds them; `others` have none of these parts."""

    pipeline_class: str
    denoisers: dict[str, nn.Module]
    decoders: dict[str, nn.Module]
    text_encoders: dict[str, nn.Module]
    priors: dict[str, nn.Module]
    others: dict[str, nn.Module]

    @property
    def all(self) -> dict[str, nn.Module]:
        """Every network."""
        return {**self.denoisers, **self.text_encoders, **self.priors, **self.others, **self.decoders}

    @property
    def denoiser(self) -> tuple[str, nn.Module]:
        """The one denoiser. Raises PipelineError where there is none, or more than one that could be."""
        return self._one("denoiser", self.denoisers)

    @property
    def decoder(self) -> tuple[str, nn.Module]:
        """The one decoder; as `denoiser`."""
        return self._one("decoder", self.decoders)

    def _one(self, kind: str, found: dict[str, nn.Module]) -> tuple[str, nn.Module]:
        if not found:
            raise PipelineError(
                f"{self.pipeline_class} holds no {kind} that is known by its signature: {', '.join(self.all) or '-'}"
            )
        if len(found) > 1:
            raise PipelineError(
                f"{self.pipeline_class} holds several {kind}s ({', '.join(found)}): none can be called the one"
            )
        return next(iter(found.items()))


def wrapped_networks_of(pipe: Any) -> dict[str, nn.Module]:
    """Every network that a pipeline holds, by attribute, compiled ones in their wrappers."""
    try:
        components = dict(getattr(pipe, "components", None) or {})
    except (TypeError, ValueError):  # a pipeline whose signature and parts do not agree
        components = {}
    own = {name: value for name, value in vars(pipe).items() if not name.startswith("_")}
    networks = {**components, **own}
    return {name: value for name, value in networks.items() if isinstance(value, nn.Module)}


def networks_of(pipe: Any) -> dict[str, nn.Module]:
    """Every network that a pipeline holds, by attribute; a compiled one as itself."""
    return {name: getattr(module, "_orig_mod", module) for name, module in wrapped_networks_of(pipe).items()}


def find_anatomy(pipe: Any) -> Anatomy:
    """What each network is."""
    kinds: dict[str, dict[str, nn.Module]] = {
        k: {} for k in ("denoiser", "decoder", "text", "prior", "other")
    }
    for name, module in networks_of(pipe).items():
        kinds[_kind_of(module)][name] = module
    if not kinds["denoiser"]:
        # Some have words of their own for what they take (x, t): the name that pipelines give them tells.
        for name in [name for name in kinds["other"] if name.startswith(DENOISER_NAMES)]:
            kinds["denoiser"][name] = kinds["other"].pop(name)
    return Anatomy(type(pipe).__name__, *kinds.values())


def _kind_of(module: nn.Module) -> str:
    parameters = forward_parameters(type(module))
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

    Raises PipelineError for a pipeline class that the prediction was not written for, and for networks whose forward
    somebody has replaced: what those do is known when they are watched.
    """
    template = written_for(pipe)
    (denoiser_name, denoiser), (decoder_name, decoder) = anatomy.denoiser, anatomy.decoder
    for name, module in anatomy.all.items():
        _refuse_replaced(name, module)
    found = {
        name: (
            _component(name, module),
            getattr(getattr(pipe, name.replace("text_encoder", "tokenizer"), None), "model_max_length", None),
        )
        for name, module in sorted(anatomy.text_encoders.items())
    }
    encoders, extra_context = match_text_encoders(found, template)
    scheduler = pipe.scheduler
    definition = replace(
        template,
        name=anatomy.pipeline_class,
        title=anatomy.pipeline_class,
        checkpoint=str(getattr(pipe, "name_or_path", "") or ""),
        source="live pipeline",
        scheduler=type(scheduler).__name__,
        scheduler_config={k: v for k, v in dict(scheduler.config).items() if not k.startswith("_")},
        denoiser=_component(denoiser_name, denoiser),
        vae=_component(decoder_name, decoder),
        text_encoders=encoders,
        prior=None
        if template.prior is None
        else template.prior_as(next(itertools.starmap(_component, anatomy.priors.items()), None)),
        # The one that text to image runs; an adapter's waits for an image.
        image_encoder=None
        if template.image_encoder is None
        else _other(anatomy, lambda module: "pixel_values" in forward_parameters(type(module))),
        safety_checker=_other(anatomy, lambda module: hasattr(module, "concept_embeds")),
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

    dtype = module_dtype(denoiser)
    # Quantized weights, float64: MACs are the same at any of the precisions that activations can have.
    return definition, ComponentCounts(dtype if dtype in PRECISIONS.values() else torch.float32, copy_on_meta)


def written_for(pipe: Any) -> PipelineDefinition:
    """The definition of the pipeline's class, or of one that it has its `__call__` from.

    Raises PipelineError where there is none: how often such a pipeline calls what is only seen in a run.
    """
    own = type(pipe).__call__
    for kind in type(pipe).__mro__:
        template = template_for(kind.__name__)
        if template is not None and kind.__call__ is own:
            return template
    raise PipelineError(
        f"no prediction is written for {type(pipe).__name__}: watch a run of it, which counts what it really does"
    )


def not_costed(definition: PipelineDefinition, anatomy: Anatomy) -> list[str]:
    """Networks of the pipeline that no prediction costs: a ControlNet, an adapter's image encoder."""
    parts = (definition.denoiser, definition.vae, *definition.text_encoders)
    optional = (definition.prior, definition.image_encoder, definition.safety_checker)
    costed = {part.class_path.partition(":")[0] for part in (*parts, *optional) if part is not None}
    return [name for name in anatomy.all if name not in costed]


# Whose forwards and hooks a prediction may call. What is the user's own runs when the user runs it.
LIBRARIES = ("torch", "diffusers", "transformers", "peft", "torchao")


def _refuse_replaced(name: str, network: nn.Module) -> None:
    for path, module in network.named_modules():
        where = ".".join(filter(None, (name, path)))
        if "forward" in vars(module) or getattr(module, "_hf_hook", None) is not None:
            raise PipelineError(
                f"the forward of {where} was replaced (offloading, layerwise casting, a cache): "
                "what it does is only known by watching a run"
            )
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        if not all(_is_of_a_library(hook) for hook in (type(module), *hooks)):
            raise PipelineError(
                f"{where} ({type(module).__name__}) has code of your own: what it does is only known by watching a run"
            )


def _is_of_a_library(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return str(module).partition(".")[0] in LIBRARIES


def _component(name: str, module: nn.Module) -> Component:
    config = getattr(module, "config", {})
    config = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    return Component(f"{name}:{type(module).__module__}.{type(module).__name__}", config)


def _other(anatomy: Anatomy, is_it: Callable[[nn.Module], bool]) -> Component | None:
    """The first of the networks without a part of the denoising that is it."""
    return next((_component(name, found) for name, found in anatomy.others.items() if is_it(found)), None)
