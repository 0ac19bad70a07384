"""What a saved profile says of training, for whoever recommends a batch from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.configs.commented_json import read_commented_json
from swinmr_profiling.configs.option_files.kair import is_option_file
from swinmr_profiling.configs.value_edit import edit_values
from swinmr_profiling.configs.writing.atomic_files import check_writable, reason, write_text
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrderError
from swinmr_profiling.profiler.batch_size.reserved import reserved_of
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.run_description import Gpu
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.files.reading import ProfileFileError, load_profile
from swinmr_profiling.profiler.record.profile import Profile


@dataclass(frozen=True)
class TrainingProfile:
    """What a recommendation reads.

    Attributes:
        memory_model: None where the network could not be traced, but was measured.
        measured: batch size -> its training step on `gpu`; resident memory of a CPU says nothing about a GPU's.
        gpu: `environment.gpu`, None for a profile of a CPU.
        held_by_others_bytes: of it, when the profile was made.
        torch_version: of the prediction, else of the run; None for a run that ended before it looked.
    """

    file: Path
    memory_model: MemoryModel | None
    measured: dict[int, TrainingRun | TrainingFailure]
    gpu: Gpu | None
    held_by_others_bytes: int
    torch_version: str | None


def read_training_profile(path: str | Path) -> TrainingProfile:
    """Reads and checks a profile. Raises ProfileFileError, also for one from which no batch can be recommended."""
    loaded = load_profile(path)
    profile, model = loaded.profile, loaded.profile.memory_model
    command = f"run scripts/profile_model.py --config {profile.config.config_file or 'CONFIG'} --predict-only"
    try:
        for setting in () if model is None else model.settings:
            reserved_of(setting)
    except AllocationOrderError as error:
        raise ProfileFileError(f"{loaded.file}: is damaged ({error}): {command}") from None
    environment = profile.machine
    gpu = None if environment is None else environment.gpu
    measured = {} if gpu is None else profile.training
    if model is None and not any(block.source == "measured" for block in measured.values()):
        raise ProfileFileError(f"{loaded.file}: holds no training memory (memory_model is null): {command}")
    of_run = None if environment is None else environment.packages["torch"]
    return TrainingProfile(
        file=Path(path),
        memory_model=model,
        measured=measured,
        gpu=gpu,
        held_by_others_bytes=0 if gpu is None else _held_by_others(profile, gpu.name),
        torch_version=of_run if model is None else model.torch_version,
    )


def _held_by_others(profile: Profile, name: str) -> int:
    """As the recommendation for the machine's own GPU counted it; 0 without one."""
    budgets = (entry.budget for entry in profile.training_advice)
    return next((budget.reserved_elsewhere_bytes for budget in budgets if budget.name == name), 0)


class RecommendationWritingError(InputError):
    """The config was left as it is; one line for the user."""


def check_config_matches(config_file: str, profile: TrainingProfile) -> None:
    """Refuses a config whose training takes other memory than the profile's.

    How far it accumulates is not compared: that is what will be written.

    Raises RecommendationWritingError, ConfigError, OutputError for a file that cannot be written.
    """
    from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint

    if Path(config_file).exists():  # before it is read: a pipe would wait for somebody to write into it
        check_writable(config_file, "--write")
    if profile.memory_model is None:
        raise RecommendationWritingError(
            f"--write {config_file}: {profile.file} has no memory_model, so that nobody can tell whether it is of this "
            "config: set data.batch_size by hand"
        )
    if is_option_file(read_commented_json(config_file)[0]):
        raise RecommendationWritingError(
            f"--write {config_file}: is a SwinMR/KAIR option file, whose batch is a global one: set it by hand"
        )
    raw = load_config(config_file).config.model_dump(mode="json")
    raw["training"]["accumulate"] = profile.memory_model.accumulate
    if memory_fingerprint(config_from_dict(raw)) != profile.memory_model.memory_fingerprint:
        raise RecommendationWritingError(
            f"--write {config_file}: its training takes other memory than the one of {profile.file}: "
            f"run scripts/profile_model.py --config {config_file} --predict-only"
        )


def write_recommendation(config_file: str, recommendation: TrainingRecommendation) -> None:
    """Sets `data.batch_size` and `training.accumulate`, atomically. Raises RecommendationWritingError, ConfigError."""
    _, raw = read_commented_json(config_file)
    values = {
        "data.batch_size": recommendation.batch_size,
        "training.accumulate": recommendation.accumulate,
    }
    text = edit_values(raw.decode("utf-8-sig"), values, config_file)
    try:
        write_text(Path(config_file), text)
    except OSError as error:
        raise RecommendationWritingError(f"--write {config_file}: {reason(error)}") from error
