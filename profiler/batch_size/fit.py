"""What a batch size needs, the largest one that fits, and how a target is shared out, from a `memory_model`.

Pure functions on the blocks of a profile, so that a run, a resumed run and a saved profile give one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.allocator.allocation_order import unpacked
from swinmr_profiling.profiler.allocator.fit_at_limit import fit_at_limit
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.reserved import interpolated, reserved_of
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel, MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import FitsSlower, Lever
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE

LEAST_STRETCH = 16


def stretch(batch_size: int) -> int:
    """How many of the next batches must not fit: 16, or 1 % rounded up where that is more."""
    return max(LEAST_STRETCH, -(-batch_size // 100))


def largest_by_rule(fits: Callable[[int], bool], last_possible: int) -> int | None:
    """The batch of the rule, None where nothing fits; no batch beyond `last_possible` fits.

    The rule, since what the allocator reserves may fall as the batch grows: going up from 1, the first batch that fits
    and of whose next max(16, 1 %) none fits. A step of one that does not fit ends nothing: segments are rounded up and
    reused, and one batch more may reserve gigabytes less.

    From one that fits the search goes on at the farthest of its stretch that fits. Those between need no look: that
    one lies in their stretch, too, since a stretch never gets shorter.
    """
    current = next((batch for batch in range(1, last_possible + 1) if fits(batch)), None)
    while current is not None:
        farthest = min(current + stretch(current), last_possible)
        further = next((batch for batch in range(farthest, current, -1) if fits(batch)), None)
        if further is None:
            return current
        current = further
    return None


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


def runs(setting: MemorySetting, batch_size: int, budget: Budget, **needs: int) -> bool:
    """Whether a batch runs within a budget; `needs` are needed_bytes' `devices` and `extra_bytes`.

    None above MAX_BATCH_SIZE does, which is not a matter of memory: no kernel is launched with so large a grid.
    """
    return (
        batch_size <= MAX_BATCH_SIZE
        and needed_bytes(setting, batch_size, budget, **needs) <= budget.usable_bytes
    )


def largest_batch(setting: MemorySetting, budget: Budget, **needs: int) -> int | None:
    """The largest batch for the budget by `largest_by_rule`, at most MAX_BATCH_SIZE; None where none fits."""
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


def fits_slower(
    setting: MemorySetting, largest: int | None, budget: Budget, *, devices: int = 1
) -> FitsSlower | None:
    """The largest batch beyond `largest` that fits with flushes or slower convolutions: `fits_slower` of an entry.

    None where there is none, or nothing to replay. It is no recommendation: each flush waits for the device.
    """
    left = left_for_training(setting, budget, devices=devices)
    if setting.allocations is None or left <= 0:
        return None
    order = unpacked(dict(setting.allocations))
    # Beyond it more is alive than there is, and no flush helps; a few steps of halving are left.
    above = reserved_of(setting).last_possible(left, MAX_BATCH_SIZE) + 1
    below, found = largest or 0, None
    while above - below > 1:
        middle = (below + above) // 2
        fit = fit_at_limit(order, middle, left)
        if fit.fits:
            below, found = middle, fit
        else:
            above = middle
    if found is None:
        return None
    return FitsSlower(batch_size=below, flushes=found.flushes, slower_convolutions=found.slower_convolutions)


class TargetBatchError(InputError):
    """A target batch that cannot be reached exactly; one line for the user."""


def share_per_device(target_batch: int | None, devices: int) -> int | None:
    """Samples of one optimizer step that fall to each device. Raises TargetBatchError."""
    if target_batch is None:
        return None
    if target_batch < 1:
        raise TargetBatchError(f"target batch {target_batch}: at least 1")
    if target_batch % devices:
        below, above = target_batch // devices * devices, -(-target_batch // devices) * devices
        choices = f"{below} or {above}" if below else f"{above}"
        raise TargetBatchError(
            f"target batch {target_batch} is not a multiple of {devices} devices: {choices} would be"
        )
    return target_batch // devices


def split_share(
    share: int, candidates: Iterable[int], usable: Callable[[int], bool] = lambda batch: True
) -> tuple[int, int] | None:
    """(batch, accumulation) whose product is share, of the first candidate that can be one; None without one."""
    for batch in candidates:
        if share % batch == 0 and usable(batch):
            return batch, share // batch
    return None
