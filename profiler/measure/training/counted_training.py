"""The MACs of a training step as `train.py` makes it, counted on tensors without data; no backward is assumed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.counting import TrainingCountReport, count_training_step
from swinmr_profiling.profiler.counting.count import PHASES
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept
from swinmr_profiling.profiler.measure.example_data import ExampleData, loader_batch
from swinmr_profiling.profiler.measure.training.own_step import OtherStep, input_shape, meta_stands_for
from swinmr_profiling.profiler.record.blocks.architecture import (
    TrainingMacs,
    TrainingMacsPerSample,
    TrainingMacsPerStep,
)
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.own_step import TrainingStep, batch_of, modules_of, take_step
from swinmr_profiling.training.step.training_step import MicroBatch, StepSettings, build_state, training_step


def count_training(built: BuiltModel, config: ExperimentConfig) -> TrainingMacs:
    """One micro-batch and one optimizer step, counted.

    The batch is the config's, or one sample where that is "auto". Every micro-batch of an accumulated step does the
    same work, and the optimizer's is done once.

    Raises:
        Whatever the step raises without data: it is not trained for real to be counted.
    """
    batch_size = config.data.batch_size if isinstance(config.data.batch_size, int) else 1
    # In single precision: what a number is stored in changes no multiply-add.
    plain = config.model_copy(update={"system": config.system.model_copy(update={"mixed_precision": False})})
    loss = build_loss(plain)
    micro_batch = next(ExampleData(built, plain, loss, torch.device("cpu")).micro_batches(batch_size))
    settings = StepSettings("cpu", None, 1, config.training.gradient.clip_norm)

    def step(module: nn.Module, loss: nn.Module, micro_batch: MicroBatch) -> None:
        training_step(
            build_state(plain, module, loss, total_steps=1), settings, [micro_batch], check=lambda _: True
        )

    report = count_training_step(step, built.module, (loss, micro_batch), only_without_data=True)
    shape = built.input_shape(batch_size, "training")
    return training_macs_block(report, shape, batch_size, batch_size * config.training.accumulate)


def count_own_step(step: OtherStep, built: BuiltModel, config: ExperimentConfig) -> TrainingMacs:
    """One call of the step that the config names, counted on copies without data.

    The batch is the config's, or one sample where that is "auto". What is in a call counts: of a step that steps an
    optimizer now and then, the first call's. Raises whatever the step raises without data.
    """
    batch_size = config.data.batch_size if isinstance(config.data.batch_size, int) else 1
    own = step.made(lambda parts: copy_to(nn.Module(), parts)[1])
    with meta_stands_for("cpu", with_autocast=False), random_state_kept():
        own.setup(torch.device("meta"))
    batch = batch_of(own, loader_batch(built, config, torch.device("meta")), batch_size)

    def call(networks: nn.Module, own: TrainingStep, batch: Any) -> None:
        # What a number is stored in changes no multiply-add.
        with meta_stands_for("cpu", with_autocast=False):
            take_step(own, batch)

    report = count_training_step(call, nn.ModuleList(modules_of(own)), (own, batch), only_without_data=True)
    return training_macs_block(report, input_shape(batch, batch_size), batch_size, batch_size)


def training_macs_block(
    report: TrainingCountReport, input_shape: list[int], batch_size: int, samples: int
) -> TrainingMacs:
    """Per sample, and per optimizer step of `samples`, from the count of one micro-batch of `batch_size`."""
    micro_batches = samples // batch_size
    forward, loss, backward, optimizer = (report.macs_by_phase[name] for name in PHASES)
    macs = micro_batches * (forward + loss + backward) + optimizer
    return TrainingMacs(
        source="counted",
        input_shape=input_shape,
        num_runs=1,
        per_sample=TrainingMacsPerSample(
            macs=(forward + loss + backward) / batch_size,
            forward_macs=forward / batch_size,
            loss_macs=loss / batch_size,
            backward_macs=backward / batch_size,
            recomputed_macs=report.recomputed_macs / batch_size,
        ),
        per_step=TrainingMacsPerStep(
            samples=samples,
            macs=macs,
            flops=2 * macs,
            forward_macs=micro_batches * forward,
            loss_macs=micro_batches * loss,
            backward_macs=micro_batches * backward,
            recomputed_macs=micro_batches * report.recomputed_macs,
            optimizer_macs=optimizer,
            optimizer_elementwise_flops=report.elementwise_flops_by_phase["optimizer"],
        ),
        uncounted_operators=report.uncounted_operators,
        note=report.note,
    )
