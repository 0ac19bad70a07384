"""The batch size to train with: a pure function of a profile's blocks and the memory of one or more GPUs.

On the GPU that was measured only a batch that ran is recommended. For a GPU elsewhere the prediction answers, and says
that it is one. Where nothing fits no number is given: the settings that would fit are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import (
    BatchStatus,
    accumulation_bytes,
    batch_status,
    config_setting,
    largest_batch,
    lever_table,
    needed_bytes,
    source_of,
)
from swinmr_profiling.profiler.batch_size.measured_training import (
    MeasuredSeries,
    MeasuredSize,
    knee_batch,
    measured_series,
)
from swinmr_profiling.profiler.batch_size.near_limit import fits_slower
from swinmr_profiling.profiler.batch_size.reasons import (
    failed_measurement_reason,
    measured_reason,
    not_run_reason,
    nothing_fits_reason,
    others_reason,
    predicted_reason,
    split_reason,
)
from swinmr_profiling.profiler.batch_size.target import TargetBatchError, share_per_device, split_share
from swinmr_profiling.profiler.record.batch_limits import MAX_BATCH_SIZE
from swinmr_profiling.profiler.record.failures import FailureKind

__all__ = ["Budget", "TargetBatchError", "lever_table", "needs_exit_3", "recommend_training"]

STEPS_OF_A_RUN = 100_000
NOTHING_FITS = "nothing_fits"
FAILED_MEASUREMENT = "failed_measurement"
NOT_RUN = "not_run"


@dataclass(frozen=True)
class _Wish:
    """What the user asked for, the same for every budget."""

    target_batch: int | None
    devices: int
    training_samples: int | None
    accumulate: int  # the config's own

    @property
    def share(self) -> int | None:
        return share_per_device(self.target_batch, self.devices)


@dataclass(frozen=True)
class _Choice:
    """One batch, how it was chosen, and what it needs."""

    batch_size: int
    accumulate: int
    largest_batch: int
    needed_bytes: int
    source: str
    verified: bool
    reason: str
    timed: MeasuredSize | None = None


def recommend_training(
    memory_model: dict[str, Any] | None,
    budgets: Sequence[Budget],
    *,
    target_batch: int | None = None,
    devices: int = 1,
    measured: Mapping[str, dict[str, Any]] | None = None,
    training_samples: int | None = None,
) -> list[dict[str, Any]]:
    """One `recommendation.training` entry per budget, in the config's own setting.

    Args:
        memory_model: the predicted block, or None where the network cannot be traced.
        target_batch: global batch to reach with several devices and accumulation. None: the config's accumulation.
        devices: GPUs of the budget's kind that train together.
        measured: `batch_profiling` with measured training blocks, of the GPU whose budget `is_this_machine`.
        training_samples: of one epoch, for the time of one.

    Raises:
        ValueError: neither a prediction nor a measurement, or devices below 1.
        TargetBatchError: the target is below 1, or no multiple of `devices`.
    """
    if devices < 1:
        raise ValueError(f"devices {devices}: at least 1")
    setting = None if memory_model is None else config_setting(memory_model)
    series = None if measured is None else measured_series(measured, setting)
    if setting is None and series is None:
        raise ValueError("neither a predicted memory model nor a measured training step")
    accumulate = 1 if memory_model is None else memory_model["accumulate"]
    wish = _Wish(target_batch, devices, training_samples, accumulate)
    _ = wish.share  # refused once, before anything is computed
    levers = (
        [[] for _ in budgets] if memory_model is None else lever_table(memory_model, budgets, devices=devices)
    )
    return [
        _recommend(memory_model, setting, series, budget, wish, table)
        for budget, table in zip(budgets, levers, strict=True)
    ]


def needs_exit_3(recommendations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether nothing fits any requested budget in the config's own setting."""
    return bool(recommendations) and all(entry["failure"] == NOTHING_FITS for entry in recommendations)


def _recommend(
    memory_model: dict[str, Any] | None,
    setting: dict[str, Any] | None,
    series: MeasuredSeries | None,
    budget: Budget,
    wish: _Wish,
    levers: list[dict[str, Any]],
) -> dict[str, Any]:
    choice: _Choice | None = None
    failure = reason = None
    if series is not None and (budget.is_this_machine or setting is None):
        if series.fault is not None:
            failure, reason = FAILED_MEASUREMENT, failed_measurement_reason(series.fault)
        else:
            choice = _choose_measured(memory_model, setting, series, budget, wish)
            if choice is None:
                failure, reason = _why_none_ran(setting, series, budget, wish, levers)
    else:
        choice = _choose_predicted(memory_model, setting, budget, wish)
        if choice is None:
            kept = accumulation_bytes(memory_model, setting, accumulate=2)
            failure = NOTHING_FITS
            reason = nothing_fits_reason(setting, budget, levers, wish.devices, accumulated_bytes=kept)
    of = setting if setting is not None else series.setting
    entry = {
        "budget": budget.to_json(),
        "precision": of["precision"],
        "checkpointing": of["checkpointing"],
        "patch_size": of["patch_size"],
        "target_batch": wish.target_batch,
        "batch_size": None,
        "largest_batch": None,
        "accumulate": None,
        "global_batch": None,
        "devices": wish.devices,
        "needed_bytes": None if setting is None else needed_bytes(setting, 1, budget, devices=wish.devices),
        "source": "predicted" if setting is not None else "measured",
        "verified": False,
        "failure": failure,
        "reason": None if reason is None else reason + others_reason(budget),
        "time": None,
        "levers": levers,
        "fits_slower": None,
    }
    if setting is not None and (choice is None or choice.source != "measured"):
        largest = None if choice is None else choice.largest_batch
        entry["fits_slower"] = fits_slower(setting, largest, budget, devices=wish.devices)
    if choice is not None:
        entry |= {
            "batch_size": choice.batch_size,
            "largest_batch": choice.largest_batch,
            "accumulate": choice.accumulate,
            "global_batch": choice.batch_size * choice.accumulate * wish.devices,
            "needed_bytes": choice.needed_bytes,
            "source": choice.source,
            "verified": choice.verified,
            "reason": choice.reason + others_reason(budget),
            "time": _time(choice, wish),
        }
    return entry


def _choose_predicted(
    memory_model: dict[str, Any], setting: dict[str, Any], budget: Budget, wish: _Wish
) -> _Choice | None:
    largest = largest_batch(setting, budget, devices=wish.devices)
    if largest is None:
        return None
    batch, accumulate, extra, note = largest, wish.accumulate, 0, ""
    if wish.share is not None:
        # Accumulated gradients stay through the next forward pass.
        kept = accumulation_bytes(memory_model, setting, accumulate=2)

        def fits(batch_size: int) -> bool:
            needs = {"devices": wish.devices, "extra_bytes": kept if batch_size < wish.share else 0}
            return batch_status(setting, batch_size, budget, **needs) is BatchStatus.FITS

        # Not every batch below the largest fits.
        split = split_share(wish.share, range(largest, 0, -1), fits)
        if split is None:
            return None
        batch, accumulate = split
        limit = largest
        if accumulate > 1:
            extra = kept
            limit = largest_batch(setting, budget, devices=wish.devices, extra_bytes=kept) or batch
        note = split_reason(batch, accumulate, wish.devices, limit)
    return _Choice(
        batch_size=batch,
        accumulate=accumulate,
        largest_batch=largest,
        needed_bytes=needed_bytes(setting, batch, budget, devices=wish.devices, extra_bytes=extra),
        source=source_of(setting, batch),
        verified=False,
        reason=predicted_reason(setting, budget, largest, wish.devices) + note,
    )


def _choose_measured(
    memory_model: dict[str, Any] | None,
    setting: dict[str, Any] | None,
    series: MeasuredSeries,
    budget: Budget,
    wish: _Wish,
) -> _Choice | None:
    def fitting(extra_bytes: int) -> dict[int, MeasuredSize]:
        return {
            size.batch_size: size
            for size in series.sizes
            if not size.retries
            and size.needed_bytes(budget.context_bytes, wish.devices) + extra_bytes <= budget.usable_bytes
        }

    fit, extra = fitting(0), 0
    if not fit:
        return None
    largest = max(fit)
    knee = knee_batch(fit.values()) or largest
    batch, accumulate, note = knee, wish.accumulate, ""
    if wish.share is not None:
        if knee < wish.share and memory_model is not None:
            extra = accumulation_bytes(memory_model, setting, accumulate=2)
            fit = fitting(extra)
        fit = {size: entry for size, entry in fit.items() if size <= knee}
        split = split_share(wish.share, sorted(fit, reverse=True))
        if split is None:
            return None
        batch, accumulate = split
        note = split_reason(batch, accumulate, wish.devices, knee)
    if wish.devices > 1:
        note += f"; it ran on one device, not on {wish.devices}"
    chosen = fit[batch]
    beyond = None if setting is None else largest_batch(setting, budget, devices=wish.devices)
    return _Choice(
        batch_size=batch,
        accumulate=accumulate,
        largest_batch=largest,
        needed_bytes=chosen.needed_bytes(budget.context_bytes, wish.devices) + extra,
        source="measured",
        # What ran is a step without accumulation, or with it, on one device; another kind of step did not run.
        verified=budget.is_this_machine and wish.devices == 1 and (accumulate > 1) == (wish.accumulate > 1),
        reason=measured_reason(series, largest, knee, beyond) + note,
        timed=chosen if budget.is_this_machine else None,
    )


def _why_none_ran(
    setting: dict[str, Any] | None,
    series: MeasuredSeries,
    budget: Budget,
    wish: _Wish,
    levers: list[dict[str, Any]],
) -> tuple[str, str]:
    """Nothing that ran fits, or divides the target: whether a smaller batch could still be tried."""
    tried = {size.batch_size for size in series.sizes} | set(series.failures)
    could = None if setting is None else _untried(setting, budget, wish.devices, max(1, min(tried) - 1))
    ran_and_fit = [
        size.batch_size
        for size in series.sizes
        if not size.retries and size.needed_bytes(budget.context_bytes, wish.devices) <= budget.usable_bytes
    ]
    if ran_and_fit and wish.share is not None:
        batch, _ = split_share(wish.share, range(min(max(ran_and_fit), MAX_BATCH_SIZE), 0, -1))
        return NOT_RUN, not_run_reason(series, batch, wish.share)
    kind, detail = series.failures.get(1, (FailureKind.OOM, ""))
    if kind != FailureKind.OOM:
        return FAILED_MEASUREMENT, failed_measurement_reason(
            f"batch 1 failed, not for memory ({kind}: {detail})"
        )
    if 1 in tried or could is None:
        return NOTHING_FITS, nothing_fits_reason(setting, budget, levers, wish.devices, series)
    return NOT_RUN, not_run_reason(series, could, None)


def _untried(setting: dict[str, Any], budget: Budget, devices: int, limit: int) -> int | None:
    """The largest batch up to a limit that is predicted to fit."""
    largest = largest_batch(setting, budget, devices=devices)
    return next(
        (
            batch
            for batch in range(min(largest or 0, limit), 0, -1)
            if batch_status(setting, batch, budget, devices=devices) is BatchStatus.FITS
        ),
        None,
    )


def _time(choice: _Choice, wish: _Wish) -> dict[str, Any] | None:
    """Seconds of an epoch and of 100,000 optimizer steps at the measured rate, communication left out."""
    if choice.timed is None or choice.timed.images_per_second is None:
        return None
    rate = choice.timed.images_per_second
    step_s = choice.batch_size * choice.accumulate / rate
    samples = wish.training_samples
    return {
        "source": "measured",
        "images_per_second_per_device": rate,
        "optimizer_step_ms": step_s * 1000,
        "seconds_per_100000_steps": step_s * STEPS_OF_A_RUN,
        "training_samples": samples,
        "seconds_per_epoch": None if samples is None else samples / (rate * wish.devices),
    }
