"""From a file to a checked config: `load_config`, and `config_from_dict` for another process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.error_report import check
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.field_types import RelativeToConfig, Section
from swinmr_profiling.configs.frequency_loss import frequency_loss_notes
from swinmr_profiling.configs.option_files.basicsr import import_basicsr, is_basicsr
from swinmr_profiling.configs.option_files.imported import GivenClass, folder_name
from swinmr_profiling.configs.option_files.kair import import_options, is_option_file
from swinmr_profiling.configs.option_files.reading import read_config_file, refuse_other_content
from swinmr_profiling.configs.schema import ExperimentConfig
from swinmr_profiling.configs.spellings import adopt_spellings
from swinmr_profiling.configs.writing.standard_streams import printable


@dataclass(frozen=True)
class LoadedConfig:
    """A config with where it came from.

    Attributes:
        config: the checked config, its paths absolute.
        file: the file, absolute.
        sha256: SHA-256 of the file's bytes, in hexadecimal.
        messages: lines that a command should print (to standard error): what was recognised, mapped, ignored.
        sections: the raw config in this project's sections, before defaults.
    """

    config: ExperimentConfig
    file: Path
    sha256: str
    messages: tuple[str, ...]
    sections: Mapping[str, Any] = field(default_factory=dict)

    def as_file(self) -> str:
        """The config as JSON in this project's sections: what was given, with its paths absolute."""
        return json.dumps(_picked(self.sections, self.config.model_dump(mode="json")), indent=2) + "\n"


def load_config(
    path: str | Path, allow_unknown: bool = False, network: GivenClass | None = None
) -> LoadedConfig:
    """Read, check and complete a config file.

    Args:
        path: a commented JSON file in this project's sections, or an option file of SwinMR, KAIR, BasicSR,
            traiNNer-redux or neosr (JSON, YAML, TOML).
        allow_unknown: turn unknown keys into messages.
        network: a class that stands for the network of an option file.

    Raises:
        ConfigError: with all problems of the file, one line per problem.
    """
    given, content = read_config_file(path)
    file = Path(os.path.abspath(path))
    origins: dict[str, str] = {}
    if is_basicsr(given) or is_option_file(given):
        imported = (
            import_basicsr(given, file.suffix.lower(), str(path), network)
            if is_basicsr(given)
            else import_options(given, str(path), network)
        )
        raw, origins, messages = imported.sections, imported.origins, imported.messages
    else:
        refuse_other_content(given, path)
        if network is not None:
            raise ConfigError(
                path,
                ["names its own model: --module stands for the network of another framework's option file"],
            )
        raw, messages = adopt_spellings(given)
    if "experiment_name" not in raw:
        raw = {"experiment_name": folder_name(file.stem), **raw}
    config, warnings = check(raw, str(path), allow_unknown, origins)
    told = (*messages, *warnings, *frequency_loss_notes(given, config))
    return LoadedConfig(
        resolve_paths(config, file.parent),
        file,
        hashlib.sha256(content).hexdigest(),
        tuple(printable(message, one_line=True) for message in told),
        raw,
    )


def config_of_sections(
    raw: dict[str, Any], source: str, sha256: str, messages: Sequence[str] = ()
) -> LoadedConfig:
    """A config that no file holds, such as that of a checkpoint. Relative paths are from the working directory.

    source: what stands for the file in errors and in the profile. Raises ConfigError.
    """
    config = resolve_paths(check(raw, source)[0], Path.cwd())
    return LoadedConfig(config, Path(source), sha256, tuple(messages), raw)


def config_from_dict(
    raw: Mapping[str, Any], folder: str | Path | None = None, *, allow_unknown: bool = False
) -> ExperimentConfig:
    """Check a config given as a dict, such as `config.model_dump(mode="json")` of another process.

    Args:
        raw: the sections.
        folder: relative paths are made absolute from here. None: paths stay as they are.
        allow_unknown: leave out keys that are unknown (of another version).

    Raises:
        ConfigError: with all problems, `file` None.
    """
    config, _ = check(dict(raw), allow_unknown=allow_unknown)
    return config if folder is None else resolve_paths(config, folder)


def resolve_paths(config: ExperimentConfig, folder: str | Path) -> ExperimentConfig:
    """A copy of `config` whose relative paths are absolute, from `folder` (`~` is the user's home)."""
    return ExperimentConfig.model_validate(_with_absolute_paths(config, Path(os.path.abspath(folder))))


def _with_absolute_paths(section: Section, folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, info in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, Section):
            value = _with_absolute_paths(value, folder)
        elif isinstance(value, str) and any(isinstance(entry, RelativeToConfig) for entry in info.metadata):
            value = os.path.normpath(folder / os.path.expanduser(value))
        result[key] = value
    for code, its_folder in (("step", "step_folder"), ("target", "target_folder")):
        if result.get(code) is not None and result.get(its_folder) is None:
            result[its_folder] = str(folder)
    return result


def _picked(given: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Of the resolved values those whose keys were given."""
    return {
        key: _picked(value, resolved[key])
        if isinstance(value, dict) and isinstance(resolved[key], dict) and value
        else resolved[key]
        for key, value in given.items()
        if key in resolved
    }
