"""A training state as a checkpoint holds it, and put back: of one process, or put together from several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swinmr_profiling.models.swin.official_state_dict import official_state_dict
from swinmr_profiling.training.errors import first_line
from swinmr_profiling.training.run.checkpoints import CheckpointError
from swinmr_profiling.training.step.training_step import TrainingState
from swinmr_profiling.training.strategies.sharded_state import (
    load_moments,
    load_weights_into,
    param_groups,
    whole_state,
)


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
