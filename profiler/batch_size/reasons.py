"""The sentences beside a recommendation: why this batch, or why none, and what to do about it."""

from __future__ import annotations

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import (
    needed_bytes,
    stretch,
    training_reserved_bytes,
    validation_needed_bytes,
)
from swinmr_profiling.profiler.batch_size.measured_training import MeasuredSeries, MeasuredSize, setting_of
from swinmr_profiling.profiler.batch_size.reserved import Interpolated, reserved_of
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import Lever
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE
from swinmr_profiling.profiler.record.units import gib

MOST_SUGGESTIONS = 3
# Less than this is the driver's own.
NOTICEABLE_BYTES = 64 * 2**20


def setting_name(setting: MemorySetting | Lever) -> str:
    """ "bf16, light checkpointing, patch 96 x 96"; without a patch the whole image."""
    checkpointing = "no" if setting.checkpointing == "none" else setting.checkpointing
    patch = "x".join(map(str, setting.patch_size)) if setting.patch_size else "whole image"
    return f"{setting.precision}, {checkpointing} checkpointing, {patch}"


def predicted_reason(setting: MemorySetting, budget: Budget, largest: int, devices: int) -> str:
    """Why the prediction chose: what was replayed beyond it, or that nothing was; and that no GPU has run it."""
    within = f"{gib(budget.usable_bytes)} ({float(budget.headroom_share) * 100:g} % headroom)"
    reserved = reserved_of(setting)
    if isinstance(reserved, Interpolated):
        sizes = reserved.sizes
        how = "interpolated" if largest < sizes[-1] else "extrapolated"
        return (
            f"{largest} fits {within} as {how} from batches {sizes[0]} to {sizes[-1]}, which can be off by a few "
            f"({reserved.why}): try it first"
        )
    if largest >= MAX_BATCH_SIZE:
        text = f"{largest} fits {within}, the largest batch a kernel is launched with"
    else:
        last = min(largest + stretch(largest), MAX_BATCH_SIZE)
        above = gib(needed_bytes(setting, largest + 1, budget, devices=devices))
        beyond = f"none of {largest + 1} to {last} fits" if last > largest + 1 else f"{last} does not"
        text = f"{largest} fits {within}, {beyond}: {largest + 1} would need {above}"
    return f"{text}; predicted, not yet verified on a GPU"


def measured_reason(series: MeasuredSeries, largest: int, knee: int, beyond: int | None) -> str:
    """Why the measurement chose: the knee or the largest that ran within the budget, and what lies beyond it."""
    if knee < largest:
        text = f"the smallest batch within 3 % of the best training throughput; {largest} fits too"
    else:
        text = "the largest batch that ran within the budget"
    last = series.sizes[-1].batch_size
    unsupported, too_large = series.smallest_unsupported, series.smallest_out_of_memory
    if unsupported is not None:
        text += f"; batch {unsupported} is unsupported by a kernel, which is not a question of memory"
    if too_large is not None:
        text += f"; batch {too_large} was out of memory"
    elif unsupported is None and largest == last and beyond is not None and beyond > last:
        text += f"; up to {beyond} may fit (extrapolated from what ran: measure it before using it)"
    return text


def split_reason(batch: int, accumulation: int, devices: int, limit: int) -> str:
    """How a target is reached, and why with less than what fits."""
    text = f"; {batch} per device x {accumulation} accumulated x {devices} device{'s' if devices > 1 else ''}"
    text += f" = {batch * accumulation * devices} global"
    if batch < limit and accumulation > 1:
        text += f" ({limit} per device would do too, but does not divide {batch * accumulation})"
    return text


def others_reason(budget: Budget) -> str:
    """That others hold part of this very GPU; nothing where they do not, or where the GPU is elsewhere."""
    if not budget.is_this_machine or budget.reserved_elsewhere_bytes < NOTICEABLE_BYTES:
        return ""
    return f"; with {gib(budget.reserved_elsewhere_bytes)} of this GPU held by others"


def failed_measurement_reason(fault: str) -> str:
    return f"the measurement failed: {fault}; nothing is derived from it: measure again, alone on the GPU"


def not_run_reason(series: MeasuredSeries, could: int, share: int | None) -> str:
    """Nothing that ran will do, and a batch that did not run might."""
    if share is not None:
        ran = ", ".join(str(size.batch_size) for size in series.sizes)
        text = f"no batch that ran ({ran}) and fits divides {share} per device"
        return f"{text}; {could} would: measure it with --batch-sizes {could}"
    tried = ", ".join(map(str, sorted({size.batch_size for size in series.sizes} | set(series.failures))))
    text = f"no measured batch ({tried}) fits; {could} may, but has not run"
    return f"{text}: measure it with --batch-sizes {could}"


def nothing_fits_reason(
    setting: MemorySetting | None,
    budget: Budget,
    levers: list[Lever],
    devices: int,
    series: MeasuredSeries | None = None,
    accumulated_bytes: int = 0,
) -> str:
    """What is in the way at batch 1, and the levers that would help, or the memory that would.

    accumulated_bytes: of gradients that a target batch would keep.
    """
    if series is not None and 1 in series.failures:
        text = f"nothing fits: batch 1 was out of memory ({series.failures[1][1]})"
    elif series is not None and series.sizes:
        text = f"nothing fits: {_what_ran_took(series.sizes[0], budget, devices)}"
    elif setting is None:
        text = "nothing fits: no measured batch is within the budget"
    else:
        text = f"nothing fits: {_what_is_in_the_way(setting, budget, devices, accumulated_bytes)}"
    return f"{text}; {_what_would_help(setting, budget, levers)}" if levers else text


def _what_ran_took(smallest: MeasuredSize, budget: Budget, devices: int) -> str:
    took = smallest.needed_bytes(budget.context_bytes, devices)
    text = f"batch {smallest.batch_size} took {gib(took)} of {gib(budget.usable_bytes)} usable"
    return f"{text}, and cached memory had to be given back for it" if smallest.retries else text


def _what_is_in_the_way(setting: MemorySetting, budget: Budget, devices: int, accumulated_bytes: int) -> str:
    usable = f"of {gib(budget.usable_bytes)} usable"
    need = needed_bytes(setting, 1, budget, devices=devices)
    validation = validation_needed_bytes(setting, budget, devices=devices)
    if setting.validation is not None and validation > budget.usable_bytes and validation == need:
        shape = "x".join(map(str, setting.validation.input_shape))
        training = need - setting.validation.reserved_bytes + training_reserved_bytes(setting, 1)
        return (
            f"validation of {shape} needs {gib(validation)} {usable} (training at batch 1: {gib(training)})"
        )
    if need <= budget.usable_bytes:
        with_gradients = gib(need + accumulated_bytes)
        return f"batch 1 needs {with_gradients} {usable} with the gradients that accumulation keeps"
    return f"batch 1 needs {gib(need)} {usable}"


def _what_would_help(setting: MemorySetting | None, budget: Budget, levers: list[Lever]) -> str:
    others = [(row, row.largest_batch) for row in levers if row.largest_batch and not row.is_config]
    if not others:
        least = min(row.needed_bytes for row in levers)
        share = budget.headroom_share
        total = -(-least * share.denominator // (share.denominator - share.numerator))
        total += budget.reserved_elsewhere_bytes
        return f"none of the {len(levers)} settings fits: it takes a GPU with {gib(total)}"
    own = setting or levers[0]

    def changes(row: Lever) -> int:
        return sum(one != other for one, other in zip(setting_of(row), setting_of(own), strict=True))

    # The fewest changes first; of equally many, what gives the largest batch.
    others.sort(key=lambda other: (changes(other[0]), -other[1]))
    named = [
        f"{setting_name(row)} (up to batch {largest}{_emulated(row, budget)})"
        for row, largest in others[:MOST_SUGGESTIONS]
    ]
    return f"fits with {'; or '.join(named)}"


def _emulated(row: Lever, budget: Budget) -> str:
    return (
        ", bf16 emulated there and slow"
        if row.precision in ("bf16", "pure_bf16") and budget.bf16_hardware is False
        else ""
    )
