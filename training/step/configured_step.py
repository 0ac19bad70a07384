"""The training step that a config names (`training.step`), imported with the user's consent and made anew for a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.models.custom.users_code import import_target, named_in
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.own_step import TrainingStep, modules_of, named_parts, optimizers_of

KEY = "training.step"
STATEFUL = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
# Takes any nest of containers and gives copies of what has a state in it, which share what the originals share.
Copy = Callable[[Any], Any]


class FunctionStep:
    """A function ``step(batch)`` whose networks and optimizers stand at the top of its file."""

    def __init__(self, function: Callable[[Any], object], held: dict[str, Any]) -> None:
        """held: what of the file's names has a state."""
        self.function, self.held = function, held

    def setup(self, device: torch.device) -> None:
        """Moves the networks to the device; the optimizers' parameters move with them."""
        for module in modules_of(self.held):
            module.to(device)

    def step(self, batch: Any) -> object:
        return self.function(batch)


class ConfiguredStep:
    """What `training.step` names."""

    def __init__(self, target: str, module: ModuleType, name: str) -> None:
        self.target, self.module, self.name = target, module, name
        # As the import made them: every run begins with copies of these.
        self._pristine = {
            key: value
            for key, value in vars(module).items()
            if not key.startswith("__")
            and not isinstance(value, (type, ModuleType))
            and not inspect.isfunction(value)
            and named_parts(value, STATEFUL)
        }

    def made(self, copied: Copy = lambda parts: parts) -> TrainingStep:
        """The step before its `setup`. copied: makes the copies that it is made of, on the meta device or elsewhere.

        Raises ModelError for a target that is no step.
        """
        held = copied(self._pristine)
        vars(self.module).update(held)
        found = named_in(self.module, KEY, self.target, object)
        if isinstance(found, type):
            try:
                found = found()
            except (Exception, SystemExit) as error:
                raise ModelError(f"{KEY}: {self.name}() raised {one_line(error)}") from error
            if modules_of(found):
                found = copied(found)
        elif not inspect.isroutine(found) and self.name.partition(".")[0] not in held:
            found = copied(found)
        if isinstance(found, TrainingStep):
            return found
        if not callable(found):
            raise ModelError(
                f"{KEY}: {self.target} is a {type(found).__name__}: give a function step(batch), or a class with "
                "setup(device) and step(batch)"
            )
        used = _names_used(found, self.module)
        networks = modules_of({name: value for name, value in held.items() if name in used})
        trained = {id(p) for network in networks for p in network.parameters()}
        return FunctionStep(
            found, {key: part for key, part in held.items() if key in used or _steps_any(part, trained)}
        )


def _steps_any(part: Any, trained: set[int]) -> bool:
    """Whether a part of a file is, or holds, an optimizer of one of these parameters, by their identity."""
    return any(
        id(p) in trained
        for optimizer in optimizers_of(part).values()
        for group in optimizer.param_groups
        for p in group["params"]
    )


def _names_used(function: Any, module: ModuleType) -> set[str]:
    """The names at the top of a file that a function asks for, itself or by other functions and classes of the file.

    A file may hold other steps, whose networks and optimizers are none of this one's.
    """
    names: set[str] = set()
    waiting: list[Any] = [getattr(function, "__func__", function)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, type):
            waiting += [member for member in vars(value).values() if inspect.isfunction(member)]
        code = value if isinstance(value, CodeType) else getattr(value, "__code__", None)
        if code is None:
            waiting += [type(value)] if not isinstance(value, type) and callable(value) else []
            continue
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in set(code.co_names) - names:
            names.add(name)
            found = vars(module).get(name)
            if inspect.isfunction(found) or isinstance(found, type):
                waiting.append(found)
    return names


def configured_step(config: ExperimentConfig, *, trust_config: bool) -> ConfiguredStep | None:
    """Imports what `training.step` names; None where it names nothing.

    Raises ModelError without trust_config (naming what would have run), and for whatever the import raises.
    """
    target = config.training.step
    if target is None:
        return None
    if not trust_config:
        raise ModelError(f"{KEY}: this config would import and run {target}; pass --trust-config to allow it")
    module = import_target(KEY, target, config.training.step_folder or ".")
    name = target.rpartition(":")[2]
    found = named_in(module, KEY, target, object)
    if isinstance(found, type) and not (hasattr(found, "setup") and hasattr(found, "step")):
        missing = " and ".join(method for method in ("setup", "step") if not hasattr(found, method))
        raise ModelError(
            f"{KEY}: {target} has no method {missing}: setup(device) and step(batch) make a step"
        )
    return ConfiguredStep(target, module, name)


def loss_label(config: ExperimentConfig, *, for_prediction: bool = False) -> str:
    """What reports call the loss that is trained: the config's, or the step that has its own."""
    if config.training.step is not None:
        name = config.training.step.rpartition(":")[2]
        return f"{KEY} {name}"
    label = str(build_loss(config, for_prediction=for_prediction).label)
    adversarial = config.training.adversarial
    return f"{label} + {adversarial.weight:g} adversarial" if adversarial.weight else label
