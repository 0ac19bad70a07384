"""The blocks of a run's profile, typed, as those take them who read profiles."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from swinmr_profiling.profiler.record.blocks.batch import Batch
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.run_description import Gpu
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.written_profile import WrittenProfile

BATCHES: TypeAdapter[dict[str, Batch]] = TypeAdapter(dict[str, Batch])
TRAINING: TypeAdapter[TrainingRun | TrainingFailure] = TypeAdapter(TrainingRun | TrainingFailure)


def typed_profile(content: dict[str, Any]) -> WrittenProfile:
    return WrittenProfile.model_validate_json(json.dumps(content))


def memory_model_of(profile: Profile) -> MemoryModel | None:
    return (
        None
        if profile.memory_model is None
        else MemoryModel.model_validate_json(json.dumps(profile.memory_model))
    )


def batches_of(profile: Profile) -> dict[str, Batch]:
    return BATCHES.validate_json(json.dumps(profile.batch_profiling))


def gpu_of(profile: Profile) -> Gpu:
    return Gpu.model_validate_json(json.dumps(profile.environment["gpu"]))


def training_of(block: dict[str, Any]) -> TrainingRun | TrainingFailure:
    return TRAINING.validate_json(json.dumps(block))
