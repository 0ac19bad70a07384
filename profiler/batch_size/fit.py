"""What a batch size needs, and the largest one that fits, from a predicted `memory_model`.

Pure functions on the blocks of a profile, so that a run, a resumed run and a saved profile give one answer.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.reserved import interpolated, reserved_of
from swinmr_profiling.profiler.batch_size.rule import largest_by_rule
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel, MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import Lever
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE


class BatchStatus(str, Enum):
    """Whether a batch can run. UNSUPPORTED is not a matter of memory: no kernel is launched with so large a grid."""

    FITS = "fits"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"


def source_of(setting: MemorySetting, batch_size: int | None) -> Literal["predicted", "extrapolated"]:
    """ "predicted" where the setting's batches are replayed, or where nothing fits; "extrapolated" where not.

    Without replays the figure of a batch of the table is as good, but not which batch is the largest.
    """
    return "predicted" if batch_size is None else reserved_of(setting).source


def training_reserved_bytes(setting: MemorySetting, batch_size: int) -> int:
    """Bytes the allocator reserves for the training step, without workspaces and context.

    Raises ValueError below batch 1.
    """
    return reserved_of(setting).reserved_bytes(batch_size)


def validation_needed_bytes(setting: MemorySetting, budget: Budget, *, devices: int = 1) -> int:
    """Bytes of the GPU that validation at full image size takes, whatever the training batch; 0 without validation."""
    validation = setting.validation
    return 0 if validation is None else _outside(setting, budget, devices) + validation.reserved_bytes


def needed_bytes(
    setting: MemorySetting, batch_size: int, budget: Budget, *, devices: int = 1, extra_bytes: int = 0
) -> int:
    """Bytes of the GPU that a run takes: context + workspaces + the larger of training's and validation's reserved.

    Args:
        devices: above 1 each holds DistributedDataParallel's gradient buckets too.
        extra_bytes: what training takes beyond the prediction (gradients kept between accumulated batches).
    """
    training = training_reserved_bytes(setting, batch_size) + extra_bytes
    training += _outside(setting, budget, devices)
    return max(training, validation_needed_bytes(setting, budget, devices=devices))


def estimated_bytes(setting: MemorySetting, batch_size: int, budget: Budget) -> int:
    """needed_bytes from the table of sizes alone: where a search looks next, and no answer."""
    training = interpolated(setting).reserved_bytes(batch_size) + _outside(setting, budget, 1)
    return max(training, validation_needed_bytes(setting, budget))


def left_for_training(
    setting: MemorySetting, budget: Budget, *, devices: int = 1, extra_bytes: int = 0
) -> int:
    """Bytes that the allocator may reserve for training; 0 where validation alone is too large for the budget."""
    if validation_needed_bytes(setting, budget, devices=devices) > budget.usable_bytes:
        return 0
    return max(budget.usable_bytes - _outside(setting, budget, devices) - extra_bytes, 0)


def _outside(setting: MemorySetting, budget: Budget, devices: int) -> int:
    buckets = setting.ddp_bucket_bytes if devices > 1 else 0
    return budget.context_bytes + budget.workspace_bytes + buckets


def batch_status(setting: MemorySetting, batch_size: int, budget: Budget, **needs: int) -> BatchStatus:
    """Whether a batch runs within a budget; `needs` are needed_bytes' `devices` and `extra_bytes`."""
    if batch_size > MAX_BATCH_SIZE:
        return BatchStatus.UNSUPPORTED
    fits = needed_bytes(setting, batch_size, budget, **needs) <= budget.usable_bytes
    return BatchStatus.FITS if fits else BatchStatus.TOO_LARGE


def largest_batch(setting: MemorySetting, budget: Budget, **needs: int) -> int | None:
    """The largest batch for the budget by the rule of batch_rule.py, at most MAX_BATCH_SIZE; None where none fits."""
    left = left_for_training(setting, budget, **needs)
    if left <= 0:
        return None
    reserved = reserved_of(setting)
    return largest_by_rule(
        lambda batch_size: reserved.fits(batch_size, left), reserved.last_possible(left, MAX_BATCH_SIZE)
    )


def lever(setting: MemorySetting, budget: Budget, **needs: int) -> Lever:
    """One setting on one GPU: its largest batch, and what that needs (batch 1's need where nothing fits)."""
    largest = largest_batch(setting, budget, **needs)
    return Lever(
        precision=setting.precision,
        checkpointing=setting.checkpointing,
        patch_size=setting.patch_size,
        is_config=setting.is_config,
        largest_batch=largest,
        needed_bytes=needed_bytes(setting, largest or 1, budget, **needs),
        source=source_of(setting, largest),
    )


def levers(memory_model: MemoryModel, budget: Budget, *, devices: int = 1) -> list[Lever]:
    """One `lever` per setting, in the model's order."""
    return [lever(setting, budget, devices=devices) for setting in memory_model.settings]


def accumulation_bytes(memory_model: MemoryModel, setting: MemorySetting, accumulation: int) -> int:
    """Gradients that stay through the next forward pass when a step accumulates and the predicted one does not.

    At most as large as the parameters, which is what is added. 0 where the prediction accumulates already.
    """
    if accumulation == 1 or memory_model.accumulate > 1:
        return 0
    parameters = (setting.terms or {}).get("parameters")
    # Without terms: what is trained, which is as much as there are gradients.
    return setting.ddp_bucket_bytes if parameters is None else parameters.fixed_bytes
