"""Batches beyond the largest that fits: those that live only because the allocator gives its cache back."""

from __future__ import annotations

from swinmr_profiling.profiler.allocator.allocation_order import unpacked
from swinmr_profiling.profiler.allocator.fit_at_limit import fit_at_limit
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import left_for_training
from swinmr_profiling.profiler.batch_size.reserved import reserved_of
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import FitsSlower
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE


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
