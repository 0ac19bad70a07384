"""What is known of a diffusers denoiser before it is called: its class, its forward's parameters, its config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch import nn

from swinmr_profiling.models.errors import ModelError

# Config keys that hold the width of the prompt's embedding, the most specific first: SANA and PixArt have a
# cross_attention_dim too, behind a projection of the caption.
CONTEXT_WIDTH_KEYS = (
    "joint_attention_dim",
    "caption_channels",
    "cap_feat_dim",
    "text_embed_dim",
    "in_text_dim",
    "text_in_dim",
    "text_dim",
    "context_in_dim",
    "encoder_hid_dim",
    "encoder_hidden_size",
    "cross_attention_input_dim",
    "cross_attention_dim",
)


class UnknownInputError(ModelError):
    """A call needs an argument, and nothing here knows what goes into it. `name`: of the argument."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} needs the argument {name!r}, and nothing here knows what goes into it")
        self.name = name


@dataclass(frozen=True)
class Denoiser:
    """What is known of a network before it is called. kind: its class; parameters: of its forward."""

    kind: type[nn.Module]
    parameters: Mapping[str, inspect.Parameter]
    config: Any

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def is_prior(self) -> bool:
        """Whether it denoises one embedding vector, conditioned by the prompt's tokens and its pooled embedding."""
        return "proj_embedding" in self.parameters

    def setting(self, key: str) -> Any:
        """A key of its config, None where it has none of it."""
        return getattr(self.config, key, None)


def context_width(config: Any) -> int:
    """Width of the prompt's embedding. Raises ModelError where no known key holds it."""
    for key in CONTEXT_WIDTH_KEYS:
        width = getattr(config, key, None)
        if isinstance(width, (tuple, list)) and width:
            width = width[0]
        if isinstance(width, int):
            return width
    raise ModelError(f"the denoiser's config has none of {', '.join(CONTEXT_WIDTH_KEYS)}: no context width")


def denoiser_of(module: nn.Module) -> Denoiser:
    """A network that is there; diffusers keeps the config that it was made with."""
    return Denoiser(type(module), forward_parameters(type(module)), getattr(module, "config", None))


def denoiser_by(kind: type[nn.Module], config: Mapping[str, Any]) -> Denoiser:
    """A network that is still to be made, with arguments of its class; the others are the class's own."""
    arguments = inspect.signature(kind.__init__).parameters.values()
    own = {p.name: p.default for p in arguments if p.default is not inspect.Parameter.empty}
    return Denoiser(kind, forward_parameters(kind), SimpleNamespace(**{**own, **config}))


def forward_parameters(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Named parameters of a network's forward."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(kind.forward).parameters
    return {name: p for name, p in parameters.items() if name != "self" and p.kind not in kinds}
