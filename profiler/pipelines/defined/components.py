"""A component's network without weights: built from its config on the meta device, where it takes no memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch import nn

from swinmr_profiling.configs.error_words import first_line
from swinmr_profiling.profiler.pipelines.defined.definition import Component
from swinmr_profiling.profiler.pipelines.defined.libraries import find_class
from swinmr_profiling.profiler.pipelines.errors import PipelineError


def build_on_meta(component: Component, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """The network in eval mode, its floating-point tensors in `dtype`, all on the meta device.

    Raises PipelineError where the config does not build, or builds another number of parameters than recorded.
    """
    kind = find_class(component.class_path)
    try:
        with torch.device("meta"), _without_initialisation():
            module = _from_diffusers(kind, component)
            if not isinstance(module, nn.Module):
                module = _from_transformers(kind, component)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(
            f"{component.class_name} cannot be built from its config: {type(error).__name__}: {first_line(error)}"
        ) from error
    count = sum(parameter.numel() for parameter in module.parameters())  # a shared one once
    if component.parameters is not None and count != component.parameters:
        raise PipelineError(
            f"{component.class_name} has {count:,} parameters, not the {component.parameters:,} that are recorded: "
            "its config is broken, or the installed version builds another network"
        )
    # nn.Module's own: diffusers' warns of a cast that is meant here.
    return nn.Module.to(module, dtype).eval().requires_grad_(False)


def _from_diffusers(kind: type, component: Component) -> nn.Module | None:
    found: Any = kind
    is_network = issubclass(kind, nn.Module) and component.class_path.startswith("diffusers.")
    if not (is_network and hasattr(kind, "from_config") and hasattr(kind, "register_to_config")):
        return None
    unknown = sorted(
        set(component.config) - set(found._get_init_keys(found)) - {"_class_name", "_diffusers_version"}
    )
    known = {key: value for key, value in component.config.items() if not key.startswith("_")}
    if unknown and component.parameters is not None:
        # A released config may hold keys of other versions; one of ours that nobody reads is a slip.
        raise PipelineError(
            f"{component.class_name} takes no {', '.join(unknown)}: remove it from its config"
        )
    return found.from_config(known)


def _from_transformers(kind: Any, component: Component) -> nn.Module:
    # Eager attention needs no kernel that a mask on meta would choose between; its products are the same.
    settings = kind.config_class(**component.config)
    settings._attn_implementation = "eager"
    return kind(settings)


def _without_initialisation() -> AbstractContextManager[object]:
    """Random numbers for meta tensors are drawn in vain; thousands of such calls take seconds."""

    def untouched(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return tensor

    names = (name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_"))
    replaced: dict[str, Any] = dict.fromkeys(names, untouched)
    return mock.patch.multiple(nn.init, **replaced)
