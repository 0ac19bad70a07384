"""The tensors of a training state that is spread over processes: each process's part, and all of it put together.

Both name tensors as a checkpoint of one process does: weights by their names, moments by the parameter's number in the
optimizer. So a state goes on under another strategy, or with another number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.training.step.training_step import TrainingState
from swinmr_profiling.training.strategies.engine import whole

MOMENTS = "optimizer."


def own_part(state: TrainingState) -> dict[str, Tensor]:
    """This process's tensors under flat names, sharded ones as DTensors: what torch.distributed.checkpoint writes."""
    found = {f"params.{name}": tensor for name, tensor in state.module.state_dict().items()}
    if state.ema is not None:
        found |= {f"params_ema.{name}": tensor for name, tensor in state.ema.module.state_dict().items()}
        found["ema_updates"] = state.ema.n_averaged
    for number, name, value in _moments(state.optimizer):
        found[f"{MOMENTS}{number}.{name}"] = value
    return found


def whole_state(state: TrainingState) -> dict[str, Any]:
    """`params`, `params_ema`, `ema_updates` and the moments (`optimizer_state`), put together on the CPU.

    Every process must ask, and every one gets it; one tensor at a time is whole on the device.
    """
    return nested({name: whole(tensor.detach()).cpu() for name, tensor in _everybodys(state)})


def nested(flat: Mapping[str, Tensor]) -> dict[str, Any]:
    """Flat names as `own_part` makes them, in the nest of a checkpoint."""
    found: dict[str, Any] = {"params": {}, "params_ema": None, "ema_updates": None, "optimizer_state": {}}
    for name, tensor in flat.items():
        kind, _, rest = name.partition(".")
        if kind == "ema_updates":
            found["ema_updates"] = tensor
        elif name.startswith(MOMENTS):
            number, _, moment = rest.partition(".")
            found["optimizer_state"].setdefault(int(number), {})[moment] = tensor
        else:
            found[kind] = found[kind] or {}
            found[kind][rest] = tensor
    return found


def param_groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The optimizer's groups as its `state_dict` has them, without asking other processes."""
    numbers = {id(p): number for number, p in enumerate(_parameters(optimizer))}
    return [
        {
            **{key: value for key, value in group.items() if key != "params"},
            "params": [numbers[id(p)] for p in group["params"]],
        }
        for group in optimizer.param_groups
    ]


def load_weights_into(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Whole weights into a network; of one that is sharded each process takes its part.

    Raises what `load_state_dict` raises for weights that are missing or too many.
    """
    ours = module.state_dict()
    if not any(is_sharded(tensor) for tensor in ours.values()):
        module.load_state_dict(weights)
        return
    for name in ours:
        if name not in weights:
            raise KeyError(name)
    with torch.no_grad():
        for name, tensor in ours.items():
            _take(tensor, weights[name])


def load_moments(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """A whole state dict into an optimizer, which may have shards, or a part of the parameters alone."""
    inner, parameters = _inner(optimizer), _parameters(optimizer)
    if inner is optimizer and not any(is_sharded(p) for p in parameters):
        optimizer.load_state_dict(state)
        return
    for group, theirs in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({key: value for key, value in theirs.items() if key != "params"})
    mine = {id(p) for group in inner.param_groups for p in group["params"]}
    for number, parameter in enumerate(parameters):
        if id(parameter) in mine and number in state["state"]:
            inner.state[parameter] = {
                name: _like(parameter, value) for name, value in state["state"][number].items()
            }


def is_sharded(tensor: Tensor) -> bool:
    """Whether a process has a part of it alone."""
    return hasattr(tensor, "full_tensor")


def _like(parameter: Tensor, value: Any) -> Any:
    """A moment as it lies beside its parameter: sharded like it where it has its shape."""
    if not isinstance(value, Tensor):
        return value
    if value.shape != parameter.shape or not value.dim():
        return value.clone()
    made = torch.zeros_like(parameter, dtype=value.dtype)
    _take(made, value)
    return made.detach()


def _take(tensor: Tensor, value: Tensor) -> None:
    """Copies a whole value into a tensor, of which this process may have a part."""
    if not is_sharded(tensor):
        tensor.copy_(value)
        return
    from torch.distributed.tensor import distribute_tensor

    spread: Any = tensor
    part = distribute_tensor(
        value.to(spread.to_local().device), spread.device_mesh, spread.placements, src_data_rank=None
    )
    spread.to_local().copy_(part.to_local())


def _inner(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that holds this process's states: ZeroRedundancyOptimizer has one inside."""
    inside = getattr(optimizer, "optim", None)
    return inside if isinstance(inside, torch.optim.Optimizer) else optimizer


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _moments(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, str, Tensor]]:
    """(number of the parameter, name, value) of each that this process has."""
    states = _inner(optimizer).state
    for number, parameter in enumerate(_parameters(optimizer)):
        for name, value in states.get(parameter, {}).items():
            yield number, name, value


def _everybodys(state: TrainingState) -> Iterator[tuple[str, Tensor]]:
    """`own_part` of all processes, in one order everywhere; moments that another one has come from there."""
    inner = _inner(state.optimizer)
    flat = own_part(state)
    if inner is state.optimizer:
        yield from flat.items()
        return
    import torch.distributed as dist

    yield from ((name, tensor) for name, tensor in flat.items() if not name.startswith(MOMENTS))
    mine = {name: tensor.cpu() for name, tensor in flat.items() if name.startswith(MOMENTS)}
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, mine)
    merged = {name: tensor for part in parts for name, tensor in part.items()}
    yield from ((name, merged[name]) for name in sorted(merged))
