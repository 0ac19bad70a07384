"""What a training step of the user's own is, and the copy of it that is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from swinmr_profiling.profiler.prediction.own_step_trace import without_data
from swinmr_profiling.training.step.own_step import OwnStepError, TrainingStep

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
MEAN_OF_OUTPUT = "mean of the output (no loss was given)"


class ModuleStep:
    """The plain step of one network: forward, loss, backward, optimizer step, gradients set to None."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: MakeOptimizer,
        loss: Callable[..., Tensor] | None,
        autocast_dtype: torch.dtype | None,
    ) -> None:
        """loss: called with the output and the batch's targets."""
        self.module, self.make_optimizer, self.loss = module, optimizer, loss
        self.autocast_dtype = autocast_dtype

    def setup(self, device: torch.device) -> None:
        self.module.train()
        self.optimizer = self.make_optimizer(p for p in self.module.parameters() if p.requires_grad)

    def step(self, batch: tuple[Sequence[Any], Mapping[str, Any], Sequence[Any]]) -> None:
        inputs, keywords, targets = batch
        with torch.autocast("cuda", self.autocast_dtype, enabled=self.autocast_dtype is not None):
            output = self.module(*inputs, **keywords)
            loss = _mean(output) if self.loss is None else self.loss(output, *targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class CallableStep:
    """A function ``step(batch)`` whose networks and optimizers exist already, such as a method of a trainer."""

    def __init__(self, step: Callable[[Any], object]) -> None:
        self.call = step

    def setup(self, device: torch.device) -> None:
        """Nothing: what it needs is there, and was copied with it."""

    def step(self, batch: Any) -> object:
        return self.call(batch)


def _mean(output: Any) -> Tensor:
    tensors = [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.requires_grad]
    if not tensors:
        raise OwnStepError("no output needs a gradient: give a loss, or parameters that train")
    return torch.stack([t.abs().mean() if t.is_complex() else t.float().mean() for t in tensors]).sum()


def on_meta(step: TrainingStep | Callable[[Any], object]) -> TrainingStep:
    """A copy whose tensors have no data, with all that it holds: networks, optimizers, what its function closes over.

    Raises OwnStepError for what cannot be copied.
    """
    found: object = step
    if isinstance(step, type):
        raise OwnStepError(f"{step.__name__} is a class: give an instance of it")
    if not isinstance(step, TrainingStep):
        _refuse_globals(step)
        found = CallableStep(_Opened(step) if inspect.isfunction(step) and step.__closure__ else step)
    # One copy of everything: an optimizer's parameters are those of the copied network.
    return cast(TrainingStep, without_data(found))


class _Opened:
    """A function and the cells that it closes over, where a copy finds them."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.closed_over = [cell.cell_contents for cell in function.__closure__]

    def __call__(self, batch: Any) -> object:
        cells = tuple(map(CellType, self.closed_over))
        code, names = self.function.__code__, self.function.__globals__
        made = type(self.function)(code, names, self.function.__name__, self.function.__defaults__, cells)
        return made(batch)


def _refuse_globals(step: object) -> None:
    """A function's global networks would be trained themselves: they are in no copy."""
    if not inspect.isfunction(step):
        return
    for name in step.__code__.co_names:
        value = step.__globals__.get(name)
        if isinstance(value, (nn.Module, torch.optim.Optimizer)):
            raise OwnStepError(
                f"{step.__name__} uses the global {name}, a {type(value).__name__}, which cannot be copied with it: "
                "make the step a class with setup(device) and step(batch), or a function inside a function"
            )
