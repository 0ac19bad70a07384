"""count_training_step: the MACs of forward and backward, model and recomputation apart."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from swinmr_profiling.profiler.counting.count import count_call, report_of
from swinmr_profiling.profiler.counting.report import TrainingCountReport

PHASES = ("forward", "loss", "backward", "optimizer")


def forward_backward(module: nn.Module, *inputs: Any, **kwargs: Any) -> None:
    """The plainest training step: the sum of every differentiable output, and its backward."""
    outputs = torch.utils._pytree.tree_leaves(module(*inputs, **kwargs))
    differentiable = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if not differentiable:
        raise ValueError("no output needs a gradient: every parameter and input of the model is frozen")
    total = sum(t.abs().sum() if t.is_complex() else t.sum() for t in differentiable)
    cast(torch.Tensor, total).backward()


def count_training_step(
    step: Callable[..., object],
    module: nn.Module,
    inputs: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    create_graph: bool = False,
    only_without_data: bool = False,
) -> TrainingCountReport:
    """Counts ``step(copy of module, *inputs, **kwargs)``, which runs a forward and a backward, and may do more.

    Args:
        step: calls the module it is given, makes a loss and calls ``backward()``; ``forward_backward`` is the
            plainest. It must not keep the module: that is a copy on the meta device, of which nothing remains.
        module: in the train or eval mode to be counted; left as it is.
        inputs, kwargs: anything the step needs, copied with the module. A loss network or an optimizer of the
            module's parameters belongs here rather than in a closure, so that it is copied too.
        create_graph: the step differentiates its own gradients (a gradient penalty) with custom backwards in Python.
        only_without_data: raise what the step raises on meta, rather than train for real.

    Returns:
        TrainingCountReport. ``training_macs`` is 3 x the forward's where every input of every product needs a
        gradient, less for first layers and frozen parts, and more where an optimizer multiplies matrices, as Muon;
        ``recomputed_macs`` is what checkpointing and fused attention backwards compute again.

    Raises:
        Whatever the step raises in a real run, where it cannot run on meta; whatever copying the module raises.
    """

    keywords = kwargs or {}
    # Around the copying too: a tensor made in inference mode can never have a gradient.
    with torch.inference_mode(False), torch.enable_grad():
        mode, counted_on, note = count_call(
            module,
            inputs,
            keywords,
            step,
            trains=True,
            only_without_data=only_without_data,
            split_recomputed=True,
            create_graph=create_graph,
        )
    counted = report_of(mode, inputs, keywords, counted_on, note)
    return TrainingCountReport(
        **vars(counted),
        training_macs=counted.macs,
        recomputed_macs=mode.tallies.apart["recomputed_macs"],
        macs_by_phase={phase: mode.tallies.by_phase[phase] for phase in PHASES},
        elementwise_flops_by_phase={phase: mode.tallies.elementwise_by_phase[phase] for phase in PHASES},
    )
