"""The trace of the training step that a config names, on batches of its own or of the loader's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.example_data import loader_batch
from swinmr_profiling.profiler.measure.own_step.other_step import OtherStep
from swinmr_profiling.profiler.measure.own_step.own_step_probe import input_shape, precision_of
from swinmr_profiling.profiler.prediction.own_step.own_step_trace import told_with_its_line, trace_step
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.own_step import (
    OwnStepError,
    TrainingStep,
    trained_bytes,
    validates,
    validation_batch_of,
)

VALIDATION = "validation is not in it: the step has no validate(batch)"


def without_data(parts: Any) -> Any:
    """Copies on the meta device, which share what the originals share. Raises OwnStepError where one cannot be made."""
    try:
        return copy_to(nn.Module(), parts)[1]
    except Exception as error:
        raise OwnStepError(f"the step cannot be copied: {type(error).__name__}: {error}") from error


def step_without_data(step: OtherStep) -> TrainingStep:
    """The step anew, before its `setup`, with all that it holds on the meta device."""
    return step.made(without_data)


def trace_configured(
    step: OtherStep,
    built: BuiltModel,
    config: ExperimentConfig,
    batch_size: int,
    *,
    as_on_cuda: bool = True,
) -> Trace:
    """The trace of the step at a batch size. Raises OwnStepError, ModelError."""
    example, whole = (
        loader_batch(built, config, torch.device("meta"), which) for which in ("training", "inference")
    )
    with attention_kernels(config.system.attention):
        return trace_step(
            step_without_data(step),
            example,
            batch_size,
            config.training.assume,
            as_on_cuda=as_on_cuda,
            validated=lambda made: validation_batch_of(made, whole, config.data.val_batch_size),
        )


def validated_shape(step: OtherStep, built: BuiltModel, config: ExperimentConfig) -> list[int] | None:
    """Of the first tensor in the batch that it validates; None where it does not say what its validation is."""
    made = set_up(step)
    if not validates(made):
        return None
    size = config.data.val_batch_size
    whole = loader_batch(built, config, torch.device("meta"), "inference")
    with told_with_its_line():
        return input_shape(validation_batch_of(made, whole, size), size)


def observed_precision(trace: Trace, step: OtherStep) -> Precision:
    """What the step computes in: the dtype of its autocast, else that of its weights."""
    return precision_of(set_up(step), {getattr(torch, name) for name in trace.autocast})


def set_up(step: OtherStep) -> TrainingStep:
    """The step on the meta device, after its `setup`."""
    made = step_without_data(step)
    with told_with_its_line(), torch.random.fork_rng(devices=()):
        made.setup(torch.device("meta"))
    return made


def trained_bytes_of(step: OtherStep) -> int:
    """Bytes of the parameters that need a gradient."""
    return trained_bytes(set_up(step))
