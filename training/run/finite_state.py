"""What of a training state is not a number: such a state is never what a run goes on from."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from swinmr_profiling.training.step.training_step import TrainingState
from swinmr_profiling.training.strategies.engine import own

# A norm layer's running statistics are the only buffers that a step writes; others may hold infinities on purpose
# (masks of attention).
StatisticsLayer = nn.modules.batchnorm._NormBase


class NonFiniteWeightsError(ArithmeticError):
    """Weights are NaN or infinite: a step has spoiled them without its loss or gradient saying so."""


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Every buffer that a forward pass in training mode changes, by name."""
    return {
        f"{place}.{name}" if place else name: buffer
        for place, layer in module.named_modules()
        if isinstance(layer, StatisticsLayer)
        for name, buffer in layer.named_buffers(recurse=False)
    }


def first_non_finite(state: TrainingState) -> str | None:
    """The name of the first weight, running statistic or average of weights that is NaN or infinite."""
    for name, tensor in _carried(state):
        if not all_finite([tensor]):
            return name
    return None


def _carried(state: TrainingState) -> Iterator[tuple[str, Tensor]]:
    yield from state.module.named_parameters()
    yield from running_statistics(state.module).items()
    if state.ema is not None:
        for name, tensor in state.ema.module.named_parameters():
            yield f"{name} of the moving average", tensor


@torch.no_grad()
def all_finite(tensors: list[Tensor]) -> bool:
    """Whether every value is a number, of sharded tensors every one that this process has; waits for the device.

    By the largest magnitude, because the L2 norm of finite values may overflow.
    """
    dense = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in map(own, tensors)]
    dense = [tensor for tensor in dense if tensor.numel()]
    if not dense:
        return True
    return math.isfinite(nn.utils.get_total_norm(dense, norm_type=math.inf))
