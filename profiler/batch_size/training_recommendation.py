"""The batch size to train with: a pure function of a profile's blocks and the memory of one or more GPUs.

On the GPU that was measured only a batch that ran is recommended. For a GPU elsewhere the prediction answers, and says
that it is one. Where nothing fits no number is given: the settings that would fit are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import (
    TargetBatchError,
    accumulation_bytes,
    fits_slower,
    largest_batch,
    levers,
    needed_bytes,
    runs,
    share_per_device,
    source_of,
    split_share,
)
from swinmr_profiling.profiler.batch_size.measured_training import (
    MeasuredSeries,
    MeasuredSize,
    knee_batch,
    measured_series,
)
from swinmr_profiling.profiler.batch_size.reasons import (
    failed_measurement_reason,
    measured_reason,
    not_run_reason,
    nothing_fits_reason,
    others_reason,
    predicted_reason,
    split_reason,
)
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel, MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import (
    FitsSlower,
    Lever,
    TrainingRecommendation,
    TrainingTime,
)
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE

__all__ = ["TargetBatchError", "needs_exit_3", "recommend_training"]

STEPS_OF_A_RUN = 100_000


@dataclass(frozen=True)
class _Wish:
    """What the user asked for, the same for every budget."""

    target_batch: int | None
    devices: int
    training_samples: int | None
    accumulation: int  # the config's own

    @property
    def share(self) -> int | None:
        return share_per_device(self.target_batch, self.devices)


@dataclass(frozen=True)
class _Choice:
    """One batch, how it was chosen, and what it needs."""

    batch_size: int
    accumulation: int
    largest_batch: int
    needed_bytes: int
    source: Literal["measured", "predicted", "extrapolated"]
    verified: bool
    reason: str
    timed: MeasuredSize | None = None


class _None(NamedTuple):
    """Why there is no batch."""

    failure: Literal["nothing_fits", "failed_measurement", "not_run"]
    reason: str


def recommend_training(
    memory_model: MemoryModel | None,
    budgets: Sequence[Budget],
    *,
    target_batch: int | None = None,
    devices: int = 1,
    measured: Mapping[int, TrainingRun | TrainingFailure] | None = None,
    training_samples: int | None = None,
) -> list[TrainingRecommendation]:
    """One `recommendation.training` entry per budget, in the config's own setting.

    Args:
        memory_model: the predicted block, or None where the network cannot be traced.
        target_batch: global batch to reach with several devices and accumulation. None: the config's accumulation.
        devices: GPUs of the budget's kind that train together.
        measured: batch size -> its training step, of the GPU whose budget `is_this_machine`.
        training_samples: of one epoch, for the time of one.

    Raises:
        ValueError: neither a prediction nor a measurement, or devices below 1.
        TargetBatchError: the target is below 1, or no multiple of `devices`.
    """
    if devices < 1:
        raise ValueError(f"devices {devices}: at least 1")
    setting = None if memory_model is None else memory_model.config_setting
    series = None if measured is None else measured_series(measured, setting)
    if setting is None and series is None:
        raise ValueError("neither a predicted memory model nor a measured training step")
    accumulation = 1 if memory_model is None else memory_model.accumulate
    wish = _Wish(target_batch, devices, training_samples, accumulation)
    _ = wish.share  # refused once, before anything is computed
    return [_recommend(memory_model, setting, series, budget, wish) for budget in budgets]


def needs_exit_3(recommendations: Sequence[TrainingRecommendation]) -> bool:
    """Whether nothing fits any requested budget in the config's own setting."""
    return bool(recommendations) and all(entry.failure == "nothing_fits" for entry in recommendations)


def _recommend(
    memory_model: MemoryModel | None,
    setting: MemorySetting | None,
    series: MeasuredSeries | None,
    budget: Budget,
    wish: _Wish,
) -> TrainingRecommendation:
    table = [] if memory_model is None else levers(memory_model, budget, devices=wish.devices)
    found: _Choice | _None
    if series is not None and (budget.is_this_machine or setting is None):
        found = _choose_measured(memory_model, setting, series, budget, wish, table)
    else:
        assert memory_model is not None
        assert setting is not None
        found = _choose_predicted(memory_model, setting, budget, wish, table)
    choice = found if isinstance(found, _Choice) else None
    of = setting or (None if series is None else series.setting)
    needed = None if setting is None else needed_bytes(setting, 1, budget, devices=wish.devices)
    return TrainingRecommendation(
        budget=budget.as_block(),
        precision=None if of is None else of.precision,
        checkpointing=None if of is None else of.checkpointing,
        patch_size=None if of is None else of.patch_size,
        target_batch=wish.target_batch,
        batch_size=None if choice is None else choice.batch_size,
        largest_batch=None if choice is None else choice.largest_batch,
        accumulate=None if choice is None else choice.accumulation,
        global_batch=None if choice is None else choice.batch_size * choice.accumulation * wish.devices,
        devices=wish.devices,
        needed_bytes=needed if choice is None else choice.needed_bytes,
        source=choice.source if choice is not None else "measured" if setting is None else "predicted",
        verified=choice is not None and choice.verified,
        failure=None if isinstance(found, _Choice) else found.failure,
        reason=found.reason + others_reason(budget),
        time=None if choice is None else _time(choice, wish),
        levers=table,
        fits_slower=_fits_slower(setting, choice, budget, wish),
    )


def _fits_slower(
    setting: MemorySetting | None, choice: _Choice | None, budget: Budget, wish: _Wish
) -> FitsSlower | None:
    if setting is None or (choice is not None and choice.source == "measured"):
        return None
    largest = None if choice is None else choice.largest_batch
    return fits_slower(setting, largest, budget, devices=wish.devices)


def _choose_predicted(
    memory_model: MemoryModel, setting: MemorySetting, budget: Budget, wish: _Wish, table: list[Lever]
) -> _Choice | _None:
    # Accumulated gradients stay through the next forward pass.
    kept = accumulation_bytes(memory_model, setting, accumulation=2)

    def nothing() -> _None:
        why = nothing_fits_reason(setting, budget, table, wish.devices, accumulated_bytes=kept)
        return _None("nothing_fits", why)

    largest = largest_batch(setting, budget, devices=wish.devices)
    if largest is None:
        return nothing()
    batch, accumulation, extra, note = largest, wish.accumulation, 0, ""
    share = wish.share
    if share is not None:

        def fits(batch_size: int) -> bool:
            needs = {"devices": wish.devices, "extra_bytes": kept if batch_size < share else 0}
            return runs(setting, batch_size, budget, **needs)

        # Not every batch below the largest fits.
        split = split_share(share, range(largest, 0, -1), fits)
        if split is None:
            return nothing()
        batch, accumulation = split
        limit = largest
        if accumulation > 1:
            extra = kept
            limit = largest_batch(setting, budget, devices=wish.devices, extra_bytes=kept) or batch
        note = split_reason(batch, accumulation, wish.devices, limit)
    return _Choice(
        batch_size=batch,
        accumulation=accumulation,
        largest_batch=largest,
        needed_bytes=needed_bytes(setting, batch, budget, devices=wish.devices, extra_bytes=extra),
        source=source_of(setting, batch),
        verified=False,
        reason=predicted_reason(setting, budget, largest, wish.devices) + note,
    )


def _choose_measured(
    memory_model: MemoryModel | None,
    setting: MemorySetting | None,
    series: MeasuredSeries,
    budget: Budget,
    wish: _Wish,
    table: list[Lever],
) -> _Choice | _None:
    if series.fault is not None:
        return _None("failed_measurement", failed_measurement_reason(series.fault))

    def fitting(extra_bytes: int) -> dict[int, MeasuredSize]:
        return {
            size.batch_size: size
            for size in series.sizes
            if not size.retries
            and size.needed_bytes(budget.context_bytes, wish.devices) + extra_bytes <= budget.usable_bytes
        }

    fit, extra = fitting(0), 0
    if not fit:
        return _why_none_ran(setting, series, budget, wish, table, fit)
    all_fit = fit
    largest = max(fit)
    knee = knee_batch(fit.values()) or largest
    batch, accumulation, note = knee, wish.accumulation, ""
    if wish.share is not None:
        if knee < wish.share and memory_model is not None and setting is not None:
            extra = accumulation_bytes(memory_model, setting, accumulation=2)
            fit = fitting(extra)
        fit = {size: entry for size, entry in fit.items() if size <= knee}
        split = split_share(wish.share, sorted(fit, reverse=True))
        if split is None:
            return _why_none_ran(setting, series, budget, wish, table, all_fit)
        batch, accumulation = split
        note = split_reason(batch, accumulation, wish.devices, knee)
    if wish.devices > 1:
        note += f"; it ran on one device, not on {wish.devices}"
    chosen = fit[batch]
    beyond = None if setting is None else largest_batch(setting, budget, devices=wish.devices)
    return _Choice(
        batch_size=batch,
        accumulation=accumulation,
        largest_batch=largest,
        needed_bytes=chosen.needed_bytes(budget.context_bytes, wish.devices) + extra,
        source="measured",
        # What ran is a step without accumulation, or with it, on one device; another kind of step did not run.
        verified=budget.is_this_machine
        and wish.devices == 1
        and (accumulation > 1) == (wish.accumulation > 1),
        reason=measured_reason(series, largest, knee, beyond) + note,
        timed=chosen if budget.is_this_machine else None,
    )


def _why_none_ran(
    setting: MemorySetting | None,
    series: MeasuredSeries,
    budget: Budget,
    wish: _Wish,
    table: list[Lever],
    ran_and_fit: Collection[int],
) -> _None:
    """Nothing that ran fits, or divides the target: whether a smaller batch could still be tried."""
    tried = {size.batch_size for size in series.sizes} | set(series.failures)
    could = None if setting is None else _untried(setting, budget, wish.devices, max(1, min(tried) - 1))
    if ran_and_fit and wish.share is not None:
        # 1 divides every share.
        split = split_share(wish.share, range(min(max(ran_and_fit), MAX_BATCH_SIZE), 0, -1))
        return _None("not_run", not_run_reason(series, split[0] if split else 1, wish.share))
    kind, detail = series.failures.get(1, ("OOM", ""))
    if kind != "OOM":
        why = f"batch 1 failed, not for memory ({kind}: {detail})"
        return _None("failed_measurement", failed_measurement_reason(why))
    if 1 in tried or could is None:
        return _None("nothing_fits", nothing_fits_reason(setting, budget, table, wish.devices, series))
    return _None("not_run", not_run_reason(series, could, None))


def _untried(setting: MemorySetting, budget: Budget, devices: int, limit: int) -> int | None:
    """The largest batch up to a limit that is predicted to fit."""
    largest = largest_batch(setting, budget, devices=devices)
    return next(
        (
            batch
            for batch in range(min(largest or 0, limit), 0, -1)
            if runs(setting, batch, budget, devices=devices)
        ),
        None,
    )


def _time(choice: _Choice, wish: _Wish) -> TrainingTime | None:
    """Seconds of an epoch and of 100,000 optimizer steps at the measured rate, communication left out."""
    if choice.timed is None or not choice.timed.images_per_second:
        return None
    rate = choice.timed.images_per_second
    step_s = choice.batch_size * choice.accumulation / rate
    samples = wish.training_samples
    return TrainingTime(
        source="measured",
        images_per_second_per_device=rate,
        optimizer_step_ms=step_s * 1000,
        seconds_per_100000_steps=step_s * STEPS_OF_A_RUN,
        training_samples=samples,
        seconds_per_epoch=None if samples is None else samples / (rate * wish.devices),
    )
