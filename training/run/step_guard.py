"""Around one step: what of a state is not a number, and what it takes to be as if a bad step had never begun."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.training.run.checkpoints import random_states, restore_random_states
from swinmr_profiling.training.step.training_step import NonFiniteGradientError, TrainingState
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
    return next((name for name, tensor in _carried(state) if not all_finite([tensor])), None)


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
    return not dense or math.isfinite(nn.utils.get_total_norm(dense, norm_type=math.inf))


class StepGuard:
    """Keeps what a step changes before its optimizer does: random states, and running statistics of norm layers.

    Refuses gradients that are not numbers before they reach the weights. The step that is profiled is without the
    guard: what it holds is on the host.
    """

    def __init__(
        self,
        state: TrainingState,
        samples: Callable[[], list[str]],
        anywhere: Callable[[bool], bool] = lambda flag: flag,
    ) -> None:
        """samples: gives the names of the samples of the step under way, for the message. anywhere: whether a flag is
        set in any process, where each has a part of the gradients alone."""
        self._anywhere = anywhere
        self.state = state
        self.is_updating = False
        self._samples = samples
        self._statistics: dict[str, Tensor] = {}
        self._random: dict[str, Any] = {}
        state.optimizer.register_step_pre_hook(self._before_update)

    def begin(self) -> None:
        """Called before every step."""
        self._random = random_states()
        statistics = running_statistics(self.state.module)
        self._statistics = {name: buffer.detach().to("cpu", copy=True) for name, buffer in statistics.items()}

    def end(self) -> None:
        """Called after every step that was made."""
        self.is_updating = False
        self._random, self._statistics = {}, {}

    def undo(self) -> None:
        """The state is again that of the step before, if a step has begun and failed before its update."""
        if self._random:
            restore_random_states(self._random)
        with torch.no_grad():
            for name, buffer in running_statistics(self.state.module).items():
                if name in self._statistics:
                    buffer.copy_(self._statistics[name])
        # Their memory is wanted for saving, where a step ran out of it.
        self.state.optimizer.zero_grad(set_to_none=True)

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        groups = optimizer.param_groups
        gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        if self._anywhere(not all_finite(gradients)):
            # Gradients are the same in all processes by now, or all have been asked: all of them stop here.
            raise NonFiniteGradientError(self.state.step + 1, self._samples())
        self.is_updating = True
