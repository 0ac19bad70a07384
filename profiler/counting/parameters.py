"""Parameters and buffers of a network, counted once each however often they are shared."""

from __future__ import annotations

from typing import Any

from torch import nn

from swinmr_profiling.profiler.record.units import MIB


def describe_parameters(module: nn.Module) -> dict[str, Any]:
    """Totals, trainable, buffers apart, bytes, and parameters by top-level module.

    A tensor that two modules share (tied weights) counts once, for the first of them, so that the parts sum to
    the whole. `model_size_mb` is MiB of the parameters, as users of this script know it; buffers stand apart.
    """
    seen: set[int] = set()

    def count_new(part: nn.Module) -> int:
        total = 0
        for parameter in part.parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                total += parameter.numel()
        return total

    own = 0
    for parameter in module.parameters(recurse=False):
        seen.add(id(parameter))
        own += parameter.numel()
    by_module = {name: count_new(child) for name, child in module.named_children()}
    if own:
        by_module["(itself)"] = own
    parameters = list(module.parameters())
    buffers = list(module.buffers())
    parameter_bytes = sum(p.numel() * p.element_size() for p in parameters)
    return {
        "total_parameters": sum(p.numel() for p in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "buffer_elements": sum(b.numel() for b in buffers),
        "parameter_bytes": parameter_bytes,
        "buffer_bytes": sum(b.numel() * b.element_size() for b in buffers),
        "model_size_mb": parameter_bytes / MIB,
        "parameters_by_module": by_module,
    }
