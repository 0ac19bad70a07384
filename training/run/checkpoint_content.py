"""A training state as a checkpoint holds it, and put back: of one process, or put together from several.

And what a checkpoint consists of: whether its parts are there and agree with one another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from swinmr_profiling.models.swin.official_state_dict import official_state_dict
from swinmr_profiling.training.errors import first_line
from swinmr_profiling.training.run.checkpoints import CheckpointError
from swinmr_profiling.training.step.optimizers import moment_shape
from swinmr_profiling.training.step.training_step import TrainingState
from swinmr_profiling.training.strategies.sharded_state import (
    load_moments,
    load_weights_into,
    param_groups,
    whole_state,
)

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


def state_content(state: TrainingState) -> dict[str, Any]:
    """The training state as a checkpoint holds it. Prefixes of torch.compile and DDP never enter: the weights
    are the bare module's."""
    ema = state.ema
    return {
        "step": state.step,
        "params": official_state_dict(state.module),
        "params_ema": None if ema is None else official_state_dict(ema.module),
        "ema_updates": None if ema is None else ema.n_averaged,
        "optimizer": state.optimizer.state_dict(),
        **_counters(state),
    }


def _counters(state: TrainingState) -> dict[str, Any]:
    return {"scheduler": state.scheduler.state_dict(), "scaler": state.scaler.state_dict()}


def whole_content(state: TrainingState) -> dict[str, Any]:
    """`state_content` of a state that is spread over processes; every process must ask."""
    found = whole_state(state)
    moments = found.pop("optimizer_state")
    official = {
        name: None if found[name] is None else official_state_dict(state.module, found[name])
        for name in ("params", "params_ema")
    }
    optimizer = {"state": moments, "param_groups": param_groups(state.optimizer)}
    return {"step": state.step, **found, **official, "optimizer": optimizer, **_counters(state)}


def rest_of_content(state: TrainingState) -> dict[str, Any]:
    """What of `state_content` is no tensor of the state."""
    return {"step": state.step, "optimizer_groups": param_groups(state.optimizer), **_counters(state)}


def restore_state(state: TrainingState, content: dict[str, Any], file: Path) -> list[str]:
    """Puts a checkpoint's content into a state built from a config of the same network and kind of optimizer.

    Weights, moments and step are the checkpoint's; learning rate, schedule, betas, weight decay and the like are the
    state's own. Returns what the state has and the checkpoint has not, or the other way round, in lines. Raises
    CheckpointError for parameters that the optimizer does not have.
    """
    step, notes = content["step"], []
    load_weights_into(state.module, content["params"])
    if state.ema is not None:
        if content["params_ema"] is None:
            notes.append(f"the moving average begins with the weights of step {step}")
        load_weights_into(state.ema.module, content["params_ema"] or content["params"])
        if content["ema_updates"] is not None:
            state.ema.n_averaged.copy_(content["ema_updates"])
    elif content["params_ema"] is not None:
        notes.append("the moving average is not gone on with")
    _restore_optimizer(state, content, file)
    if state.scaler.is_enabled():
        if content["scaler"]:
            state.scaler.load_state_dict(content["scaler"])
        else:
            notes.append("the scale of fp16's loss begins anew")
    state.step = step
    return notes


def _restore_optimizer(state: TrainingState, content: dict[str, Any], file: Path) -> None:
    """The checkpoint's moments and place in the schedule under the state's own settings."""
    theirs, ours = content["optimizer"], param_groups(state.optimizer)
    try:
        groups = [
            {**own, "params": group["params"]}
            for own, group in zip(ours, theirs["param_groups"], strict=True)
        ]
        load_moments(state.optimizer, {"state": theirs["state"], "param_groups": groups})
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{file}: its optimizer does not fit: {first_line(error)}") from error
    scheduler: Any = state.scheduler  # a LambdaLR
    step = content["step"]
    rates = [
        base * factor(step) for base, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    scheduler.load_state_dict({**content["scheduler"], "base_lrs": scheduler.base_lrs, "_last_lr": rates})
    for group, rate in zip(state.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
