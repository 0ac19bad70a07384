"""Optimizers and learning-rate schedules of the config; every count is in optimizer steps.

Some optimizers are more than one of torch's, or keep what a library's keeps where the library is not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from importlib import import_module, util
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils._python_dispatch import TorchDispatchMode

from swinmr_profiling.configs.sections.training import OptimizerSection, SchedulerSection
from swinmr_profiling.training.errors import OptimizerError

# bitsandbytes/optim/optimizer.py, Optimizer2State.init_state, 0.44 and newer (before, blocks had 2048 numbers): one
# byte per number and state, and a float32 per block; what is smaller stays float32; two tables of 256 float32.
BLOCK_NUMBERS = 256
LEAST_QUANTIZED_NUMBERS = 4096
TABLE_NUMBERS = 256


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for matrices, AdamW for all else, as torch.optim.Muon's documentation has it: it takes 2-D tensors alone.

    Updates of matrices are scaled to AdamW's (`match_rms_adamw`, Liu et al. 2025), so that one learning rate and one
    weight decay serve both. Two groups of parameters: the matrices, the others.
    """

    def __init__(
        self, matrices: list[nn.Parameter], others: list[nn.Parameter], section: OptimizerSection
    ) -> None:
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices,
                section.lr,
                section.weight_decay,
                momentum=section.momentum,
                adjust_lr_fn="match_rms_adamw",
            )
        ]
        if others:
            self._parts.append(build_adam(torch.optim.AdamW, others, section))
        super().__init__([group for part in self._parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As of every optimizer."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for part, group in zip(self._parts, self.param_groups, strict=True):
            # A checkpoint or a schedule may have set other groups and states.
            part.param_groups, part.state = [group], self.state
            part.step()
        return loss


class AdafactorWithoutData(torch.optim.Adafactor):
    """Adafactor of parameters without data: norms, which it asks for as numbers, are taken to be 1."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As of every optimizer; memory does not depend on the norms."""
        with _NumbersAreOne():
            return super().step(closure)


class _NumbersAreOne(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0
        return function(*args, **(kwargs or {}))


class QuantizedStatesOfNothing(torch.optim.Optimizer):
    """Makes the states of bitsandbytes' Adam8bit and AdamW8bit, for parameters without data; updates nothing.

    Their kernels work in place and take no memory beside the states.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], section: OptimizerSection) -> None:
        super().__init__(parameters, {"lr": section.lr})
        self._tables: list[Tensor] = []

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes what the first step makes."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = self._states(parameter)

    def _states(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        if parameter.numel() < LEAST_QUANTIZED_NUMBERS:
            return {name: torch.zeros_like(parameter, dtype=torch.float32) for name in ("state1", "state2")}
        device = parameter.device
        if not self._tables:
            self._tables = [torch.zeros(TABLE_NUMBERS, device=device) for _ in range(2)]
        blocks = -(-parameter.numel() // BLOCK_NUMBERS)
        states = {name: torch.zeros_like(parameter, dtype=torch.uint8) for name in ("state1", "state2")}
        return states | {name: torch.zeros(blocks, device=device) for name in ("absmax1", "absmax2")}


def build_muon(parameters: list[nn.Parameter], section: OptimizerSection) -> torch.optim.Optimizer:
    """Raises OptimizerError for a network without matrices."""
    matrices = [parameter for parameter in parameters if parameter.dim() == 2]
    others = [parameter for parameter in parameters if parameter.dim() != 2]
    if not matrices:
        raise OptimizerError(
            'training.optimizer.type "muon" trains matrices, and none of the trained parameters is one (weights of '
            'convolutions are not): take "adamw"'
        )
    return MuonAndAdamW(matrices, others, section)


def build_quantized_adam(parameters: list[nn.Parameter], section: OptimizerSection) -> torch.optim.Optimizer:
    """bitsandbytes' optimizer, and a stand-in for parameters without data.

    Raises OptimizerError where bitsandbytes is not installed, or the parameters are not on a CUDA device.
    """
    device = parameters[0].device.type
    if device == "meta":
        return QuantizedStatesOfNothing(parameters, section)
    asked = f'training.optimizer.type "{section.type}"'
    if device != "cuda":
        raise OptimizerError(
            f"{asked} runs on a CUDA device alone, not on {device}: its memory can be predicted there"
        )
    if util.find_spec("bitsandbytes") is None:
        raise OptimizerError(
            f"{asked} is bitsandbytes', which is not installed: pip install bitsandbytes (its memory can be predicted "
            "without it)"
        )
    library = import_module("bitsandbytes").optim
    kind = library.Adam8bit if section.type == "adam_8bit" else library.AdamW8bit
    return build_adam(kind, parameters, section)


def build_adafactor(parameters: list[nn.Parameter], section: OptimizerSection) -> torch.optim.Optimizer:
    """torch's, with its defaults beside the learning rate and the weight decay."""
    kind = AdafactorWithoutData if parameters[0].is_meta else torch.optim.Adafactor
    return kind(parameters, lr=section.lr, weight_decay=section.weight_decay)


def build_adam(kind: Any, parameters: list[nn.Parameter], section: OptimizerSection) -> torch.optim.Optimizer:
    """kind: a class that takes what torch.optim.Adam takes."""
    betas = (section.betas[0], section.betas[1])
    return kind(parameters, lr=section.lr, betas=betas, eps=section.eps, weight_decay=section.weight_decay)


def state_bytes(parameters: Iterable[nn.Parameter], section: OptimizerSection) -> int:
    """What the optimizer keeps of the parameters that are trained; its scalars left out."""
    return sum(_state_bytes(parameter, section) for parameter in parameters if parameter.requires_grad)


def _state_bytes(parameter: nn.Parameter, section: OptimizerSection) -> int:
    own, numbers = parameter.nbytes, parameter.numel()
    if section.type == "sgd":
        return own if section.momentum else 0
    if section.type == "muon" and parameter.dim() == 2:
        return own
    if section.type == "adafactor":
        if parameter.dim() < 2:
            return own
        return own // parameter.shape[-1] + own // parameter.shape[-2]
    if section.type.endswith("_8bit") and numbers >= LEAST_QUANTIZED_NUMBERS:
        return 2 * (numbers + 4 * -(-numbers // BLOCK_NUMBERS))
    return 2 * own


def moment_shape(name: str, shape: torch.Size) -> tuple[int, ...]:
    """Of what an optimizer keeps of a parameter of a shape, by the name that it has in the optimizer's state."""
    if name == "row_var":
        return (*shape[:-1], 1)
    if name == "col_var":
        return (*shape[:-2], 1, shape[-1])
    if name.startswith("absmax"):
        return (-(-shape.numel() // BLOCK_NUMBERS),)
    if name.startswith("qmap"):
        return (TABLE_NUMBERS,)
    return tuple(shape)


def build_optimizer(parameters: Iterable[nn.Parameter], section: OptimizerSection) -> torch.optim.Optimizer:
    """The optimizer over the parameters that require gradients. Raises OptimizerError."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if section.type == "sgd":
        return torch.optim.SGD(
            trained, lr=section.lr, momentum=section.momentum, weight_decay=section.weight_decay
        )
    if section.type == "adafactor":
        return build_adafactor(trained, section)
    if section.type == "muon":
        return build_muon(trained, section)
    if section.type in ("adam_8bit", "adamw_8bit"):
        return build_quantized_adam(trained, section)
    return build_adam(torch.optim.AdamW if section.type == "adamw" else torch.optim.Adam, trained, section)


def learning_rate_factor(step: int, section: SchedulerSection, total_steps: int, base_lr: float) -> float:
    """Learning rate of optimizer step `step` (from 0) over the base rate.

    A linear rise over `warmup_steps` (step 0 takes 1 / warmup_steps, never 0), then "multistep":
    gamma^(milestones passed), or "cosine": from 1 to min_lr / lr over the steps that are left
    (Loshchilov and Hutter 2017, eq. 5, one period).
    """
    if step < section.warmup_steps:
        return (step + 1) / section.warmup_steps
    if section.type == "multistep":
        return section.gamma ** sum(step >= milestone for milestone in section.milestones)
    if section.type == "cosine":
        progress = min((step - section.warmup_steps) / max(total_steps - section.warmup_steps, 1), 1.0)
        lowest = section.min_lr / base_lr
        return lowest + (1 - lowest) * (1 + math.cos(math.pi * progress)) / 2
    return 1.0


def build_scheduler(
    optimizer: torch.optim.Optimizer, section: SchedulerSection, total_steps: int
) -> LambdaLR:
    """The schedule, stepped once per optimizer step."""
    base_lr = optimizer.param_groups[0]["lr"]
    return LambdaLR(optimizer, lambda step: learning_rate_factor(step, section, total_steps, base_lr))
