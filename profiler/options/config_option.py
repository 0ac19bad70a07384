"""What `--config` and `--allow-unknown` are to every command that takes one config."""

from __future__ import annotations

import argparse

from swinmr_profiling.configs import LoadedConfig, load_config
from swinmr_profiling.configs.writing.standard_streams import complain


def config_told_of(parsed: argparse.Namespace) -> LoadedConfig:
    """The config that was named; what was recognised and left out is said. Raises ConfigError."""
    loaded = load_config(parsed.config, allow_unknown=parsed.allow_unknown)
    for message in loaded.messages:
        complain(message)
    return loaded
