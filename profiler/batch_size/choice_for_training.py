"""From a profile to the batch size that `train.py` takes for `"batch_size": "auto"`: an integer, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.batch_size.gpus import same_card
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.files.reading import MissingProfileError, ProfileFileError, load_profile
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.units import MIB


class BatchSizeError(InputError):
    """The profile gives no batch size for this config on this device; one line with the command to run."""


@dataclass(frozen=True)
class Device:
    """Where training runs. total_bytes: as CUDA reports it; on a CPU what the host has to give."""

    name: str
    total_bytes: int
    count: int = 1


@dataclass(frozen=True)
class BatchSizeChoice:
    """What to train with: samples per device and micro-batch, micro-batches per step; and where it comes from."""

    batch_size: int
    accumulation: int
    message: str


def choose_batch_size(
    config: ExperimentConfig,
    profile_file: Path,
    device: Device,
    *,
    config_file: Path,
    loss: str,
    allow_stale: bool = False,
) -> BatchSizeChoice:
    """The batch size and accumulation that a profile recommends for this config on this device.

    Args:
        config: whose `data.batch_size` is "auto".
        config_file: named in the command that an error proposes.
        loss: the parts of the loss as built here; files on disk decide about some.
        allow_stale: take the recommendation though it was made for another config or loss.

    Raises:
        BatchSizeError: no such profile, one of another network or setting, or none of its cards is small enough.
    """
    command = f"python scripts/profile_model.py --config {config_file} --predict-only --output {profile_file}"
    profile = _read(profile_file, command)
    model = profile.memory_model
    entries = profile.training_advice
    if model is None or not entries:
        raise BatchSizeError(f"{profile_file} says nothing about the memory of training: run {command}")
    entry = _entry_for(entries, device, profile_file, command)
    batch_size, accumulation = entry.batch_size, entry.accumulate
    if batch_size is None or accumulation is None:
        raise BatchSizeError(f"{profile_file}: nothing fits {entry.budget.name}: {entry.reason}")
    # Without a target the accumulation is the config's own business.
    if entry.target_batch is None:
        accumulation = config.training.accumulate
    stale = _what_is_stale(config, accumulation, model, entry, device, loss)
    if stale and not allow_stale:
        raise BatchSizeError(f"{profile_file} {stale}: run {command} (or --allow-stale-profile)")
    total = batch_size * accumulation * device.count
    message = (
        f"batch size from {profile_file}: {batch_size} per device, {entry.source} for {entry.budget.name}; "
        f"{batch_size} x {accumulation} accumulated x {device.count} devices = {total} per step"
    )
    return BatchSizeChoice(batch_size, accumulation, f"{message} ({stale})" if stale else message)


def _read(file: Path, command: str) -> Profile:
    try:
        return load_profile(file).profile
    except MissingProfileError:
        message = f'data.batch_size is "auto" and there is no profile {file}: run {command}'
        raise BatchSizeError(message) from None
    except ProfileFileError as error:
        raise BatchSizeError(f"{error}: run {command}") from error


def _entry_for(
    entries: list[TrainingRecommendation], device: Device, file: Path, command: str
) -> TrainingRecommendation:
    """The recommendation for this very card, else for the largest that has no more memory."""
    smallest = min(entry.budget.total_bytes for entry in entries)
    usable = [entry for entry in entries if entry.budget.total_bytes <= device.total_bytes]
    if not usable:
        raise BatchSizeError(
            f"{file} was made for cards of at least {smallest / MIB:,.0f} MiB and {device.name} has "
            f"{device.total_bytes / MIB:,.0f}: run {command} --gpu-memory {device.total_bytes // MIB}MiB"
        )
    same = [entry for entry in usable if same_card(entry.budget.name, device.name)]
    return max(same or usable, key=lambda entry: entry.budget.total_bytes)


def _what_is_stale(
    config: ExperimentConfig,
    accumulation: int,
    model: MemoryModel,
    entry: TrainingRecommendation,
    device: Device,
    loss: str,
) -> str | None:
    """Why the profile does not speak of this run, or None.

    A recommendation for a target counts the gradients that accumulation keeps; one without a target speaks of the
    accumulation that the profile was made with, or less.
    """
    predicted_for = model.accumulate
    if model.memory_fingerprint != memory_fingerprint(_accumulating(config, predicted_for)):
        return "was made with another network, patch, precision, loss or optimizer than the config has now"
    if entry.target_batch is None and accumulation > 1 and predicted_for == 1:
        return f"was made without accumulation, and the config has {accumulation}"
    if model.loss != loss:
        return f"was made with the loss {model.loss}, and here it is {loss}"
    # Several devices hold gradient buckets that one has not; and a target is shared out among them.
    alone = entry.devices == 1 and device.count > 1
    if alone or (entry.target_batch is not None and entry.devices != device.count):
        return f"recommends for {entry.devices} devices and this run has {device.count} (--devices)"
    return None


def _accumulating(config: ExperimentConfig, accumulation: int) -> ExperimentConfig:
    training = config.training.model_copy(update={"accumulate": accumulation})
    return config.model_copy(update={"training": training})


def with_choice(config: ExperimentConfig, choice: BatchSizeChoice) -> ExperimentConfig:
    """The config with integers where it said "auto"."""
    data = config.data.model_copy(update={"batch_size": choice.batch_size})
    return _accumulating(config, choice.accumulation).model_copy(update={"data": data})
