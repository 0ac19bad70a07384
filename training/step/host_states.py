"""An optimizer whose states lie on the host between its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from swinmr_profiling.training.step.host_memory import (
    copy_to_device,
    copy_to_host,
    on_the_host,
    write_to_host,
)


class StatesOnHost(torch.optim.Optimizer):
    """Brings the states of one parameter at a time to the device, updates it there, and takes them back.

    Each update is the optimizer's own, on the device: only where its states wait is another place. The groups and the
    state dict are the optimizer's, so that checkpoints go on with and without.
    """

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        """inner: without states as yet."""
        self.inner = inner
        super().__init__(inner.param_groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As of every optimizer."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for number, group in enumerate(self.param_groups):
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(number, parameter)
        return loss

    def _update(self, number: int, parameter: Tensor) -> None:
        kept = self.state[parameter]
        brought = {
            name: copy_to_device(value, parameter.device) if _moves(value) else value
            for name, value in kept.items()
        }
        self.inner.state = defaultdict(dict, {parameter: brought} if brought else {})
        self.inner.param_groups = [
            {**group, "params": [parameter] if place == number else []}
            for place, group in enumerate(self.param_groups)
        ]
        del brought
        self.inner.step()
        made = self.inner.state.pop(parameter)
        for name, value in made.items():
            if not _moves(value):
                kept[name] = value
            elif name in kept:
                write_to_host(kept[name], value)
            else:
                kept[name] = copy_to_host(value)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Groups as torch loads them; states stay on the host."""
        super().load_state_dict({**state_dict, "state": {}})
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, moments in state_dict["state"].items():
            parameter = parameters[number]
            self.state[parameter] = {
                name: _as_kept(value, parameter) if _moves(value) else value
                for name, value in moments.items()
            }


def _moves(value: Any) -> bool:
    """Counters of steps have no axes, and stay where the optimizer has them."""
    return isinstance(value, Tensor) and value.dim() > 0


def _as_kept(value: Tensor, parameter: Tensor) -> Tensor:
    with on_the_host():
        pinned = parameter.device.type == "cuda"
        kept = torch.empty_like(value, device="cpu", dtype=parameter.dtype, pin_memory=pinned)
        return kept.copy_(value)
