"""The `architecture` block: parameters and buffers, counted once however often they are shared, then the MACs."""

from __future__ import annotations

from torch import nn

from swinmr_profiling.profiler.counting.report import CountReport
from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.units import GIGA, MIB


def describe_parameters(module: nn.Module, input_shape: list[int]) -> Architecture:
    """Totals, trainable, buffers apart, bytes, and parameters by top-level module; multiply-adds are not known yet.

    input_shape: of one image.

    A tensor that two modules share (tied weights) counts once, for the first of them, so that the parts sum to
    the whole. `model_size_mb` is MiB of the parameters, as users of this script know it; buffers stand apart.
    """
    by_module = {name: 0 for name, _ in module.named_children()}
    # Each once, where it is met first: the module's own come before those of its children.
    for name, parameter in module.named_parameters():
        part = name.partition(".")[0] if "." in name else "(itself)"
        by_module[part] = by_module.get(part, 0) + parameter.numel()
    parameters = list(module.parameters())
    buffers = list(module.buffers())
    parameter_bytes = sum(p.numel() * p.element_size() for p in parameters)
    return Architecture(
        source="counted",
        input_shape=input_shape,
        num_runs=1,
        total_parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        buffer_elements=sum(b.numel() for b in buffers),
        parameter_bytes=parameter_bytes,
        buffer_bytes=sum(b.numel() * b.element_size() for b in buffers),
        model_size_mb=parameter_bytes / MIB,
        parameters_by_module=by_module,
        **dict.fromkeys(("macs", "flops", "gmacs", "gflops", "flops_per_parameter", "reconstruction")),
        counters=[],
    )


def with_counts(architecture: Architecture, counted: CountReport) -> Architecture:
    """The architecture with the multiply-adds of one image."""
    known = {name: value for name, value in vars(counted).items() if name in Architecture.model_fields}
    parameters = architecture.total_parameters
    return Architecture.model_validate(
        {
            **architecture.to_json(),
            **known,
            "input_shape": architecture.input_shape,
            "trainable_parameters": architecture.trainable_parameters,
            "gmacs": counted.macs / GIGA,
            "gflops": counted.flops / GIGA,
            "flops_per_parameter": counted.flops / parameters if parameters else None,
        }
    )
