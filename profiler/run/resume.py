"""Going on from the profile of an earlier run of the same config on the same machine."""

from __future__ import annotations

from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch
from swinmr_profiling.profiler.record.blocks.run_description import Environment
from swinmr_profiling.profiler.record.files.reading import (
    MissingProfileError,
    ProfileFileError,
    load_profile,
)
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION, Profile

# What makes two runs one: with any of these different the figures are of something else.
SAME_CONFIG = (
    "config_sha256", "precision", "channels_last", "compile", "num_runs", "warmup", "time_budget_s", "seed", "threads",
    "resolved",
)  # fmt: skip


class ResumeError(InputError):
    """The earlier file cannot be gone on from; one line for the user."""


def read_earlier(path: Path | None) -> Profile | None:
    """The earlier profile, or None where there is none yet.

    Raises ResumeError for a file that is not a profile, or one in which something is missing that the run will read.
    """
    if path is None:
        raise ResumeError("--resume needs the file of an earlier run: --output FILE, not -")
    try:
        loaded = load_profile(path)
    except MissingProfileError:
        return None
    except ProfileFileError as error:
        raise ResumeError(f"--resume: {error}") from error
    if loaded.imported:
        raise ResumeError(f"--resume: {path} is not a profile of schema version {SCHEMA_VERSION}")
    return loaded.profile


def machine_of(environment: Environment) -> dict[str, str | int | None]:
    """What makes a machine the same one for a latency: processor, threads, GPU, torch."""
    cpu, gpu = environment.cpu, environment.gpu
    return {
        "processor": cpu.name,
        "usable cores": cpu.usable_cores,
        "threads": cpu.threads,
        "GPU": None if gpu is None else gpu.name,
        "torch": environment.torch_version,
    }


def take_over(profile: Profile, earlier: Profile) -> list[str]:
    """Copies what the earlier run finished into the profile, whose machine is not known yet.

    Sizes that ran or were out of memory stay; killed, crashed, skipped ones are tried again. Returns the
    batch sizes taken over. Raises ResumeError, naming the difference, for another config.
    """
    for key in SAME_CONFIG:
        if getattr(earlier.config, key) != getattr(profile.config, key):
            raise ResumeError(f"--resume: the earlier profile has another {key}: use another --output")
    if earlier.machine is None:  # it ended before it knew its machine
        return []
    if profile.config.resolved.get("training", {}).get("step") is not None:
        _refuse_edited_step(config_from_dict(profile.config.resolved), earlier)
    profile.environment = earlier.environment
    if isinstance(earlier.single_image, MeasuredBatch):
        profile.single_image = earlier.single_image
    architecture = earlier.architecture
    if architecture is not None and architecture.macs is not None:
        profile.architecture = architecture
    profile.memory_model = earlier.memory_model
    profile.recommendation = earlier.recommendation
    profile.perceptual_metric = earlier.perceptual_metric
    profile.batch_profiling = {
        size: block
        for size, block in earlier.batch_profiling.items()
        if isinstance(block, MeasuredBatch) or block.error == "OOM"
    }
    profile.warnings = [
        warning
        for warning in earlier.warnings
        if warning.batch_size is None or str(warning.batch_size) in profile.batch_profiling
    ]
    return list(profile.batch_profiling)


def _refuse_edited_step(config: ExperimentConfig, earlier: Profile) -> None:
    """What was measured may be of another text of the step's file: the fingerprint of the prediction tells."""
    model = earlier.memory_model
    if model is None or model.memory_fingerprint != memory_fingerprint(config):
        raise ResumeError(
            f"--resume: {config.training.step} was edited since the earlier profile, or that has no prediction to tell "
            "by: use another --output"
        )


def check_machine(profile: Profile, earlier: Profile) -> None:
    """Raises ResumeError, naming the difference, where the profile's machine or device is not the earlier one's.

    Afterwards the profile's environment says what it was resumed from.
    """
    before, now = earlier.machine, profile.machine
    if before is None or now is None:
        return
    was = {"device": earlier.config.device, **machine_of(before)}
    is_now = {"device": profile.config.device, **machine_of(now)}
    for key, value in is_now.items():
        if was[key] != value:
            raise ResumeError(
                f"--resume: the earlier profile was made with {key} {was[key]}, this is {value}: use another --output"
            )
    now.resumed_from_utc = before.time_utc
