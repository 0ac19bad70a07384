#!/usr/bin/env python3
"""Profiles the network of a JSON config: parameters, MACs, latency and memory per batch size.

    python scripts/profile_model.py --config configs/train_config.json --batch-sizes 1,4,8
    python scripts/profile_model.py --config configs/train_config.json --device cpu
    python scripts/profile_model.py --config configs/train_config.json --report results/report.html
    python scripts/profile_model.py --configs configs/train_config_small.json configs/train_config_large.json

Exit status: 0 done, 2 bad arguments or config, 3 no requested size fits, 4 partial result, 5 a gate of the user's
failed, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.standard_streams import complain, replace_unknown_characters
from swinmr_profiling.profiler.batch_size.gpus import listed_gpus
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT, EXIT_DONE
from swinmr_profiling.profiler.run.command_line import listed_models, parse_profile_arguments
from swinmr_profiling.profiler.run.profile_command import USER_ERRORS, profile_one, profile_several


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    replace_unknown_characters()
    given = sys.argv[1:] if arguments is None else arguments
    parsed = parse_profile_arguments(given)
    if parsed.list_models:
        print(listed_models())
        return EXIT_DONE
    if parsed.list_gpus:
        print(listed_gpus())
        return EXIT_DONE
    try:
        return (profile_one if parsed.configs is None else profile_several)(parsed, given)
    except USER_ERRORS as error:
        complain(f"error: {error}")
        return EXIT_BAD_INPUT


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
