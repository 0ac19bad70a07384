"""A step in the place of this project's own: which it is, how it is measured, and ways that torch takes by a device's
name, where it runs on tensors without data.

Measured, it is called as often as its optimizers need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any, Protocol
from unittest import mock

import torch
from torch import Tensor
from torch.cuda.amp import common
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_leaves

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.stand_in import all_entered
from swinmr_profiling.profiler.measure.example_data import loader_batch
from swinmr_profiling.profiler.measure.machine.devices import MeasuredDevice
from swinmr_profiling.profiler.measure.measurement import TrainingMeasurement
from swinmr_profiling.profiler.measure.training.training_probe import (
    PRECISION_NAMES,
    StepWatch,
    as_training_sets,
)
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.training.step.adversarial_orders import ConfiguredAdversarialStep
from swinmr_profiling.training.step.configured_step import configured_step, loss_label
from swinmr_profiling.training.step.own_step import (
    TrainingStep,
    autocast_noted,
    batch_of,
    calls_until_stepped,
    modules_of,
    take_step,
    validates,
    validation_batch_of,
)

FUSED = "_get_fused_kernels_supported_devices"


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


@contextmanager
def meta_stands_for(device_type: str, *, with_autocast: bool) -> Iterator[None]:
    """`torch.autocast(device.type)` of the device that a step was given is that one's; fused optimizers take it.

    with_autocast: False leaves every autocast off, where only products are counted.
    """
    make = torch.amp.autocast_mode.autocast.__init__

    def made(
        self: Any, given: str, dtype: Any = None, enabled: bool = True, *rest: Any, **options: Any
    ) -> None:
        if not with_autocast:
            make(self, "cpu", torch.bfloat16, False)
        else:
            make(self, device_type if given == "meta" else given, dtype, enabled, *rest, **options)

    changes: list[Any] = [mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", made)]
    for module in (_foreach_utils, optimizer):
        if supported := getattr(module, FUSED, None):
            changes.append(mock.patch.object(module, FUSED, return_value=[*supported(), "meta"]))
    if with_autocast:
        # A gradient scaler works as it will on a GPU, whether or not one is here.
        changes.append(mock.patch.object(common, "amp_definitely_not_available", return_value=False))
    with all_entered(changes):
        yield


def probe_own_step(
    step: OtherStep,
    built: BuiltModel,
    config: ExperimentConfig,
    device: torch.device,
    batch_size: int,
    steps: int,
    measured: MeasuredDevice,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> TrainingMeasurement:
    """Calls the step `steps` times, and on until each of its optimizers has stepped twice.

    Its batches are its own, or the loader's with the network's example inputs. Then its validation, where it has one.
    on_stage: told what begins. Raises whatever the step or the device raises.
    """
    example = loader_batch(built, config, torch.device("cpu"))
    shape, validated = [batch_size], None
    with as_training_sets(config), autocast_noted() as noted:
        on_stage("setting up")
        own = step.made()
        own.setup(device)
        watch = StepWatch(measured, steps, on_stage)
        for number in calls_until_stepped(own, steps):
            on_stage(f"step {number} of {steps}")
            batch = batch_of(own, example, batch_size, device)
            shape = input_shape(batch, batch_size)
            call = _Call(own, batch)
            del batch
            watch.time(call, call.let_go)
            watch.finite = watch.finite and call.finite
            del call

        def validate() -> None:
            nonlocal validated
            size = config.data.val_batch_size
            whole = loader_batch(built, config, torch.device("cpu"), "inference")
            batch = validation_batch_of(own, whole, size, device)
            validated = input_shape(batch, size)
            with torch.no_grad():
                own.validate(batch)  # type: ignore[attr-defined]

        watch.end(validate if validates(own) else None)
        return watch.measurement(
            batch_size=batch_size,
            accumulation=1,
            input_shape=shape,
            validation_shape=validated,
            precision=precision_of(own, noted),
            checkpointing="none",
            patch_size=None,
            loss=loss_label(config),
            steps_run=len(watch.step_ms),
        )


class _Call:
    """One call of a step with a batch that nobody else holds."""

    def __init__(self, step: TrainingStep, batch: object) -> None:
        self.step, self.batch = step, batch
        self.outcome: object = None
        self.finite = True

    def __call__(self) -> None:
        self.outcome = take_step(self.step, self.batch)
        self.batch = None

    def let_go(self) -> None:
        """Of what the step returned, after whether its losses are numbers."""
        losses = [x for x in tree_leaves(self.outcome) if isinstance(x, Tensor) and not x.dim()]
        self.finite = all(bool(torch.isfinite(loss)) for loss in losses)
        self.outcome = None


def input_shape(batch: object, batch_size: int) -> list[int]:
    """The shape of a batch's first tensor; of a batch without one, the number of samples."""
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
    return list(tensors[0].shape) if tensors else [batch_size]


def precision_of(step: object, autocast: Set[torch.dtype]) -> Precision:
    """What a step computes in: the dtype of its autocast, else that of its weights."""
    for dtype in (torch.bfloat16, torch.float16):
        if dtype in autocast:
            return PRECISION_NAMES[dtype]
    in_bf16 = [p.dtype == torch.bfloat16 for network in modules_of(step) for p in network.parameters()]
    return "pure_bf16" if in_bf16 and all(in_bf16) else "fp32"
