"""What a pipeline is made of: classes and configs of its components, as read from a JSON definition.

`configs/pipelines/*.json` hold the released checkpoints; `folder.py` makes the same records from a local diffusers
folder. Nothing here imports diffusers or torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from swinmr_profiling.configs.error_words import did_you_mean
from swinmr_profiling.profiler.pipelines.errors import PipelineError

DEFINITIONS_DIR = Path(__file__).resolve().parents[3] / "configs" / "pipelines"
# How guidance reaches the denoiser: one call of twice the batch, two calls, or an input of a distilled network.
GUIDANCE_MODES = ("doubled_batch", "two_calls", "distilled")
PADDINGS = ("fixed", "prompt")


@dataclass(frozen=True)
class Component:
    """One network. `parameters` is the recorded count, None where none is recorded."""

    class_path: str
    config: dict[str, Any]
    parameters: int | None = None
    note: str | None = None

    @property
    def class_name(self) -> str:
        return self.class_path.rpartition(".")[2]


class PromptLengths(NamedTuple):
    """Tokens of an encoder's call, of them those handed to the denoiser, and of these those that are not padding."""

    encoded: int
    context: int
    real: int


@dataclass(frozen=True)
class TextEncoder(Component):
    """A text encoder and the tokens it sees.

    Attributes:
        tokens: sequence length of a call by default, template included.
        padding: "fixed" where every prompt is padded to `tokens` (CLIP), "prompt" where the length can be chosen.
        context_tokens: of these, how many the denoiser attends to.
        template_tokens: tokens around the prompt, encoded but not handed on.
        pads_to_multiple_of: the prompt's length is rounded up to it.
        context_follows_prompt: the encoder is padded, but the denoiser sees the real tokens and one more.
        is_masked: the denoiser is given all tokens and a mask, and works on the real ones (Lumina-Image-2.0).
        calls_with_guidance: 2 where the empty prompt is encoded too, else 1.
    """

    name: str = "text_encoder"
    tokens: int = 77
    padding: str = "fixed"
    context_tokens: int = 0
    template_tokens: int = 0
    pads_to_multiple_of: int = 1
    context_follows_prompt: bool = False
    is_masked: bool = False
    calls_with_guidance: int = 2

    def lengths(self, prompt_tokens: int | None) -> PromptLengths:
        """Sequence lengths for a prompt of so many tokens; None: the default."""
        if prompt_tokens is None:
            return PromptLengths(self.tokens, self.context_tokens, self.context_tokens)
        if self.padding == "fixed":
            cut = min(prompt_tokens + 1, self.context_tokens)
            context = cut if self.context_follows_prompt else self.context_tokens
            real = min(prompt_tokens, context) if self.is_masked else context
            return PromptLengths(self.tokens, context, real)
        padded = -(-prompt_tokens // self.pads_to_multiple_of) * self.pads_to_multiple_of
        context = padded if self.context_tokens else 0
        return PromptLengths(padded + self.template_tokens, context, context)


@dataclass(frozen=True)
class Prior(Component):
    """A network that denoises an image embedding before the denoiser runs (Kandinsky 2.2)."""

    scheduler: str = "UnCLIPScheduler"
    scheduler_config: dict[str, Any] = field(default_factory=dict)
    default_steps: int = 25
    default_guidance_scale: float = 4.0
    guidance: str = "doubled_batch"


@dataclass(frozen=True)
class PipelineDefinition:
    """One pipeline.

    Attributes:
        scheduler, scheduler_config: diffusers class and what differs from its defaults.
        guidance: one of GUIDANCE_MODES.
        rounds_up_to_multiple_of: pixels to which the pipeline itself rounds up, or None.
        resolution_binning: the pipeline computes at the nearest resolution of its table.
        strength: image-to-image: the share of the steps that is run; None for text to image.
        guidance_needs_negative_prompt: without one the guidance scale has no effect.
        extra_context_tokens: zeros that the pipeline hands on in place of a text encoder that was left out.
    """

    name: str
    title: str
    checkpoint: str
    source: str
    pipeline_class: str
    scheduler: str
    scheduler_config: dict[str, Any]
    default_steps: int
    default_guidance_scale: float
    guidance: str
    native_resolution: int
    denoiser: Component
    vae: Component
    text_encoders: tuple[TextEncoder, ...]
    prior: Prior | None = None
    image_encoder: Component | None = None
    safety_checker: Component | None = None
    vae_scale_factor: int | None = None
    rounds_up_to_multiple_of: int | None = None
    resolution_binning: bool = False
    strength: float | None = None
    guidance_needs_negative_prompt: bool = False
    extra_context_tokens: int = 0
    notes: tuple[str, ...] = ()

    def prior_as(self, found: Component | None) -> Prior | None:
        """The prior with another network, where there is one."""
        if self.prior is None or found is None:
            return None
        return replace(self.prior, class_path=found.class_path, config=found.config, parameters=None)


def list_pipelines() -> list[str]:
    """Names of the definitions that come with the project."""
    return sorted(file.stem for file in DEFINITIONS_DIR.glob("*.json"))


def load_pipeline(name: str) -> PipelineDefinition:
    """The definition of that name. Raises PipelineError with the nearest names for an unknown one."""
    names = list_pipelines()
    if name not in names:
        hint = did_you_mean(name.lower(), names, "--list prints all names", most=3, likeness=0.4)
        raise PipelineError(f"pipeline {name!r} is not known: {hint}")
    return read_definition(DEFINITIONS_DIR / f"{name}.json")


def read_definition(file: Path) -> PipelineDefinition:
    """A definition file as records. Raises PipelineError for one that is broken, naming the key."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(f"{file}: cannot be read as JSON: {error}") from error
    try:
        return definition_from_json(raw)
    except KeyError as error:
        raise PipelineError(f"{file}: the key {error.args[0]!r} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise PipelineError(f"{file}: not a pipeline definition: {error}") from error


def definition_from_json(raw: dict[str, Any]) -> PipelineDefinition:
    """Records from a definition's JSON. Raises KeyError for a missing key, TypeError for an unknown one."""
    pipeline = dict(raw["pipeline"])
    if pipeline["guidance"] not in GUIDANCE_MODES:
        raise TypeError(f"pipeline.guidance is {pipeline['guidance']!r}: one of {', '.join(GUIDANCE_MODES)}")
    encoders = tuple(_component(TextEncoder, encoder) for encoder in raw["text_encoders"])
    for encoder in encoders:
        if encoder.padding not in PADDINGS:
            raise TypeError(f"padding of {encoder.name} is {encoder.padding!r}: one of {', '.join(PADDINGS)}")
    optional = {"image_encoder": Component, "safety_checker": Component, "prior": Prior}
    return PipelineDefinition(
        name=raw["name"],
        title=raw["title"],
        checkpoint=raw["checkpoint"],
        source=raw["source"],
        pipeline_class=pipeline.pop("class"),
        denoiser=_component(Component, raw["denoiser"]),
        vae=_component(Component, raw["vae"]),
        text_encoders=encoders,
        notes=tuple(raw.get("notes", ())),
        **{key: _component(kind, raw[key]) for key, kind in optional.items() if key in raw},
        **pipeline,
    )


def _component(kind: type[Component], raw: dict[str, Any]) -> Any:
    fields = dict(raw)
    return kind(class_path=fields.pop("class"), config=fields.pop("config"), **fields)
