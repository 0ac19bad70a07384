"""The configs room: JSON files, the schema that checks them, and the loader."""

if __name__ == "configs":  # found as a folder, at the top of a checkout
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    from swinmr_profiling.short_names import stand_for

    stand_for(__name__)

from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.loading import (
    LoadedConfig,
    config_from_dict,
    config_of_sections,
    load_config,
    resolve_paths,
)
from swinmr_profiling.configs.schema import ExperimentConfig

__all__ = [
    "ConfigError",
    "ExperimentConfig",
    "LoadedConfig",
    "config_from_dict",
    "config_of_sections",
    "load_config",
    "resolve_paths",
]
