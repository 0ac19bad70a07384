"""The configs room: JSON files, the schema that checks them, and the loader."""

from configs.errors import ConfigError
from configs.loading import LoadedConfig, config_from_dict, load_config, resolve_paths
from configs.schema import ExperimentConfig

__all__ = [
    "ConfigError",
    "ExperimentConfig",
    "LoadedConfig",
    "config_from_dict",
    "load_config",
    "resolve_paths",
]
