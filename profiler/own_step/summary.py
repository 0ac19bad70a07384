"""summary, count and recommend: what the commands report, of a live module, as the record's blocks."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from torch import Tensor, nn

from swinmr_profiling.profiler.batch_size.budget import DEFAULT_HEADROOM, budget_on
from swinmr_profiling.profiler.batch_size.gpus import find_gpu
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.counting.count import count_forward
from swinmr_profiling.profiler.counting.parameters import describe_parameters, with_counts
from swinmr_profiling.profiler.counting.report import CountReport
from swinmr_profiling.profiler.own_step.apart import apart
from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation


def count(module: nn.Module, inputs: Any, keywords: Mapping[str, Any] | None = None) -> CountReport:
    """Multiply-adds of ``module(*inputs, **keywords)``, exact, in the module's own train or eval mode.

    inputs: a tensor, or a tuple of arguments of any kind. The module is left as it is; the call runs on a copy without
    data. Raises what the module raises.

    Example:
        >>> count(torch.nn.Linear(8, 4), torch.zeros(2, 8)).macs
        64
    """
    with apart():
        return count_forward(module, _arguments(inputs), dict(keywords or {}))


def summary(module: nn.Module, inputs: Any, keywords: Mapping[str, Any] | None = None) -> Architecture:
    """Parameters, buffers, multiply-adds by kind, operator and module: the ``architecture`` block of a profile.

    inputs: as for `count`; of one sample, if the figures are to be those of the commands.

    Example:
        >>> summary(torch.nn.Linear(8, 4), torch.zeros(1, 8)).total_parameters
        36
    """
    counted = count(module, inputs, keywords)
    shape = counted.input_shapes[0] if counted.input_shapes else []
    return with_counts(describe_parameters(module, shape), counted)


def recommend(
    prediction: MemoryModel,
    gpu: str,
    *,
    target_batch: int | None = None,
    devices: int = 1,
    headroom: Fraction = DEFAULT_HEADROOM,
) -> TrainingRecommendation:
    """The batch size for a GPU by its name ("RTX 4090"): the ``recommendation.training`` entry of a profile.

    prediction: of `predict_training`. target_batch: the global batch to reach with several devices and accumulation.
    headroom: share of the card's memory that stays free.

    Raises GpuNameError for a card that is not known, TargetBatchError for a target that the devices do not divide.

    Example:
        >>> recommend(predict_training(torch.nn.Linear(8, 4), torch.zeros(2, 8)), "RTX 4090").batch_size > 1
        True
    """
    card = find_gpu(gpu)
    budget = budget_on(
        card.name,
        card.total_bytes,
        card.compute_capability,
        torch_version=prediction.torch_version,
        headroom_share=headroom,
    )
    [entry] = recommend_training(prediction, [budget], target_batch=target_batch, devices=devices)
    return entry


def _arguments(inputs: Any) -> tuple[Any, ...]:
    return (inputs,) if isinstance(inputs, Tensor) or not isinstance(inputs, (tuple, list)) else tuple(inputs)
