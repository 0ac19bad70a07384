"""A run of a training step of the user's own: one network, one optimizer, and what else a checkpoint holds of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.own_step_source import source_sha256
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.run.checkpoints import CheckpointError
from swinmr_profiling.training.step.configured_step import FunctionStep, configured_step
from swinmr_profiling.training.step.own_step import (
    OwnStepError,
    TrainingStep,
    named_parts,
    on_device,
    only_part,
)
from swinmr_profiling.training.step.training_step import TrainingState

# Parts of a step whose state a checkpoint holds beside network and optimizer.
WITH_A_STATE = (LRScheduler, torch.amp.GradScaler)
PLAIN = (str, int, float, bool, type(None), Tensor)


class NoSchedule:
    """Stands where the loop has its schedule: the learning rate is the step's own business."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.last_epoch = 0
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        self.lr_lambdas = [lambda step: 1.0 for _ in self.base_lrs]

    def step(self) -> None:
        self.last_epoch += 1

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.last_epoch = state["last_epoch"]


class OwnTraining:
    """The step of a run, set up on its device."""

    def __init__(self, config: ExperimentConfig, world: World, *, trust_config: bool) -> None:
        """Raises ModelError for what cannot be imported, OwnStepError for a step that cannot be trained here."""
        found = configured_step(config, trust_config=trust_config)
        assert found is not None  # the caller has asked
        if world.size > 1:
            raise OwnStepError(f"training.step {found.target}: is trained on one device, not on {world.size}")
        self.target, self.sha256 = found.target, source_sha256(config.training)
        self.step: TrainingStep = found.made()
        self.step.setup(world.device)
        self.network: nn.Module = only_part(self.step, nn.Module, "network")
        self.optimizer: torch.optim.Optimizer = only_part(self.step, torch.optim.Optimizer, "optimizer")
        trained = {id(p) for p in self.network.parameters()}
        if any(id(p) not in trained for group in self.optimizer.param_groups for p in group["params"]):
            raise OwnStepError(
                f"training.step {found.target}: its optimizer has parameters that its network does not"
            )
        self._plain = self._counters()
        self._batches = 0

    def state(self, loss: nn.Module, device: torch.device) -> TrainingState:
        """What the loop goes on with. loss: of validation."""
        return TrainingState(
            network=self.network,
            module=self.network,
            loss=loss,
            optimizer=self.optimizer,
            scheduler=cast(LRScheduler, NoSchedule(self.optimizer)),
            scaler=torch.amp.GradScaler(device.type, enabled=False),
            ema=None,
            own_step=self.step,
        )

    def prepare(self, batch: Mapping[str, Any], device: torch.device, epoch: int, number: int) -> Any:
        """The loader's batch on the device, as the step takes it.

        Raises OwnStepError after the first step of a run for what a checkpoint would not hold.
        """
        self._batches += 1
        if self._batches == 2:
            self._refuse_what_would_be_lost()
        return on_device(dict(batch), device)

    def content(self) -> dict[str, Any]:
        """Of a checkpoint."""
        own = self._own_state()
        return {
            "target": self.target,
            "sha256": self.sha256,
            "optimizer": type(self.optimizer).__name__,
            "state": own if _is_plain(own) else None,
            "parts": {name: part.state_dict() for name, part in self._parts().items()},
        }

    def restore(self, content: Mapping[str, Any], file: Path) -> list[str]:
        """Goes on from a checkpoint's `content`; what is to be said of it. Raises CheckpointError."""
        found = content["own_step"]
        kind, parts = type(self.optimizer).__name__, self._parts()
        if found["optimizer"] != kind or set(found["parts"]) != set(parts):
            raise CheckpointError(
                f"{file} was trained with {', '.join([found['optimizer'], *found['parts']])}, training.step "
                f"{self.target} has {', '.join([kind, *parts])}: take another experiment_name, or --restart"
            )
        if found["state"] is not None and self._has_state_dict():
            cast(Any, self.step).load_state_dict(found["state"])
        for name, part in parts.items():
            part.load_state_dict(found["parts"][name])
        if any(isinstance(part, LRScheduler) for part in parts.values()):
            for group, saved in zip(
                self.optimizer.param_groups, content["optimizer"]["param_groups"], strict=True
            ):
                group["lr"] = saved["lr"]
        self._plain = self._counters()
        if found["sha256"] != self.sha256:
            return [f"{self.target} was edited since the checkpoint; from here on it is as it is now"]
        return []

    def _parts(self) -> dict[str, Any]:
        return named_parts(self.step, WITH_A_STATE)

    def _refuse_what_would_be_lost(self) -> None:
        if not _is_plain(self._own_state()):
            raise OwnStepError(
                f"training.step {self.target}: its state_dict() holds more than tensors, numbers and texts"
            )
        now = {} if self._has_state_dict() else self._counters()
        if changed := [name for name in now if name not in self._plain or now[name] != self._plain[name]]:
            raise OwnStepError(
                f"training.step {self.target}: {', '.join(changed)} changes from step to step, and a checkpoint "
                "would not hold it: give the step state_dict() and load_state_dict()"
            )

    def _own_state(self) -> Any:
        return cast(Any, self.step).state_dict() if self._has_state_dict() else None

    def _has_state_dict(self) -> bool:
        return hasattr(self.step, "state_dict") and hasattr(self.step, "load_state_dict")

    def _counters(self) -> dict[str, Any]:
        """Numbers and texts that the step keeps: what it counts, if it counts."""
        step = self.step
        kept = dict(vars(step)) if hasattr(step, "__dict__") else {}
        if isinstance(step, FunctionStep):
            kept = dict(getattr(step.function, "__globals__", {}))
        return {
            name: value
            for name, value in kept.items()
            if isinstance(value, (bool, int, float, str)) and not name.startswith("__")
        }


def refuse_another_step(own: OwnTraining | None, content: Mapping[str, Any], file: Path) -> None:
    """Raises CheckpointError where one of run and checkpoint has a step of the user's own and the other has not."""
    found = content.get("own_step")
    if (own is None) == (found is None):
        return
    was = f"was trained by training.step {found['target']}" if found else "was not trained by training.step"
    raise CheckpointError(f"{file} {was}: take another experiment_name, or --restart")


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _is_plain(inner) for key, inner in value.items())
    return all(map(_is_plain, value)) if isinstance(value, (list, tuple)) else isinstance(value, PLAIN)
