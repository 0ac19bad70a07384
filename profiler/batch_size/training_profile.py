"""What a saved profile says of training, for whoever recommends a batch from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrderError
from swinmr_profiling.profiler.batch_size.reserved import reserved_of
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.run_description import Environment, Gpu
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
    environment = profile.environment if isinstance(profile.environment, Environment) else None
    gpu = None if environment is None else environment.gpu
    measured = {} if gpu is None else training_of(profile)
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


def training_of(profile: Profile) -> dict[int, TrainingRun | TrainingFailure]:
    """The training step of each batch size that has one."""
    blocks = {int(size): block.training for size, block in profile.batch_profiling.items()}
    return {size: block for size, block in blocks.items() if block is not None}


def _held_by_others(profile: Profile, name: str) -> int:
    """As the recommendation for the machine's own GPU counted it; 0 without one."""
    entries = [] if profile.recommendation is None else profile.recommendation.training
    return next((entry.budget.reserved_elsewhere_bytes for entry in entries if entry.budget.name == name), 0)
