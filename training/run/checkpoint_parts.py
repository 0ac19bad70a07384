"""What a training checkpoint consists of, and whether its parts are there and agree with one another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from swinmr_profiling.training.run.checkpoints import CheckpointError
from swinmr_profiling.training.step.optimizers import moment_shape

Size = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    """Younger checkpoints may hold more; what is here must be there."""

    model_config = ConfigDict(arbitrary_types_allowed=True, strict=True, extra="allow")


class _Optimizer(_Part):
    state: dict[int, dict[str, Any]]
    param_groups: list[dict[str, Any]] = Field(min_length=1)


class _Scheduler(_Part):
    last_epoch: NotNegative


class _Progress(_Part):
    model_config = ConfigDict(strict=True, extra="forbid")

    best: Annotated[float, Field(allow_inf_nan=False)] | None
    best_step: NotNegative | None
    validations_without_improvement: NotNegative


class _BatchSizes(_Part):
    batch_size_per_device: Size
    accumulate: Size
    devices: Size
    global_batch_size: Size


class _RandomStates(_Part):
    torch: Tensor
    cuda: list[Tensor]
    numpy: list[Any] = Field(min_length=5, max_length=5)
    python: list[Any] = Field(min_length=3, max_length=3)


class _Checkpoint(_Part):
    step: NotNegative
    params: dict[str, Tensor]
    params_ema: dict[str, Tensor] | None
    ema_updates: Tensor | None
    optimizer: _Optimizer
    scheduler: _Scheduler
    scaler: dict[str, Any]
    progress: _Progress
    batch_sizes: _BatchSizes
    random_states: list[_RandomStates] = Field(min_length=1)
    skipped: list[tuple[str, int, str]] | list[list[Any]] = []
    validation_is_due: bool = False


def check_parts(content: dict[str, Any], file: Path, total_steps: int) -> None:
    """Raises CheckpointError, naming the part, for one that is missing or contradicts another.

    total_steps: of the run that is to go on from it.
    """
    try:
        parts = _Checkpoint.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(key) for key in first["loc"])
        raise CheckpointError(f"{file} is damaged: its part {place}: {first['msg']}") from None
    step, sizes = parts.step, parts.batch_sizes
    for agrees, text in (
        (
            parts.scheduler.last_epoch == step,
            f"step {step}, but its schedule is at {parts.scheduler.last_epoch}",
        ),
        (
            (parts.progress.best_step or 0) <= step,
            f"step {step}, but its best is of {parts.progress.best_step}",
        ),
        (
            sizes.global_batch_size == sizes.batch_size_per_device * sizes.accumulate * sizes.devices,
            f"a global batch of {sizes.global_batch_size}, but {sizes.batch_size_per_device} x {sizes.accumulate} "
            f"accumulated x {sizes.devices} devices",
        ),
        (
            len(parts.random_states) == sizes.devices,
            f"{sizes.devices} devices, but random states of {len(parts.random_states)}",
        ),
    ):
        if not agrees:
            raise CheckpointError(f"{file} is damaged: it says {text}")
    if step > total_steps:
        raise CheckpointError(
            f"{file} is of step {step}, beyond the {total_steps} steps of this run: raise training.total_steps (or "
            "epochs), or --restart"
        )


def check_moments(optimizer: torch.optim.Optimizer, content: dict[str, Any], file: Path) -> None:
    """Raises CheckpointError for moments of other shapes than the parameters, which torch would take."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, moments in content["optimizer"]["state"].items():
        if not 0 <= number < len(parameters):
            raise CheckpointError(
                f"{file}: its optimizer does not fit: it has moments of a parameter {number}"
            )
        shape = parameters[number].shape
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != moment_shape(name, shape):
                raise CheckpointError(
                    f"{file}: its optimizer does not fit: {name} of parameter {number} is {tuple(value.shape)}, the "
                    f"parameter {tuple(shape)}"
                )
    has_none = isinstance(optimizer, torch.optim.SGD)  # without momentum
    if content["step"] and not has_none and not content["optimizer"]["state"]:
        raise CheckpointError(f"{file} is damaged: it is of step {content['step']}, but has no moments")
