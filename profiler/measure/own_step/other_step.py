"""The step that stands in the place of this project's own: the user's, or one with a discriminator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.example_data import loader_batch
from swinmr_profiling.training.step.adversarial_orders import ConfiguredAdversarialStep
from swinmr_profiling.training.step.configured_step import configured_step
from swinmr_profiling.training.step.own_step import TrainingStep


class OtherStep(Protocol):
    """Makes the step anew for each run."""

    def made(self, copied: Callable[[Any], Any] = ...) -> TrainingStep:
        """The step before its `setup`, of copies that `copied` makes."""


def other_step(
    config: ExperimentConfig, built: BuiltModel, *, trust_config: bool, for_prediction: bool = False
) -> OtherStep | None:
    """What the config trains in place of this project's step; None where it is that.

    for_prediction: nothing will be computed (see `build_loss`). Raises ModelError, LossError.
    """
    if config.training.adversarial.weight:
        patches, whole = (
            loader_batch(built, config, torch.device("cpu"), which) for which in ("training", "inference")
        )
        return ConfiguredAdversarialStep(
            config, built.module, patches, whole, trust_config=trust_config, for_prediction=for_prediction
        )
    return configured_step(config, trust_config=trust_config)
