"""Putting a recommended batch size into a config file, comments kept, if it is the config the profile is of."""

from __future__ import annotations

from pathlib import Path

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.configs.commented_json import read_commented_json
from swinmr_profiling.configs.option_files.kair import is_option_file
from swinmr_profiling.configs.value_edit import edit_values
from swinmr_profiling.configs.writing.atomic_files import check_writable, reason, write_text
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.batch_size.training_profile import TrainingProfile
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation


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
