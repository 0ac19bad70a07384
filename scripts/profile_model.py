#!/usr/bin/env python3
"""Profiles the network of a JSON config: parameters, MACs, latency and memory per batch size.

    python scripts/profile_model.py --config configs/train_config.json --batch-sizes 1,4,8
    python scripts/profile_model.py --config configs/train_config.json --device cpu
    python scripts/profile_model.py --config configs/train_config.json --report results/report.html
    python scripts/profile_model.py --checkpoint model.pth
    python scripts/profile_model.py --module path/to/file.py:Class --inputs 1x3x256x256 --trust-config
    python scripts/profile_model.py --configs configs/train_config_small.json configs/train_config_large.json

Exit status: 0 done, 2 bad arguments or config, 3 no requested size fits, 4 partial result, 5 a gate of the user's
failed, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.reports.console.gpus import print_gpus
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns
from swinmr_profiling.profiler.run.options.command_line import listed_models, parse_profile_arguments
from swinmr_profiling.profiler.run.profile_command import profile_one, profile_several


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_profile_arguments(arguments)
    if parsed.list_models or parsed.list_gpus:
        return _list(parsed.list_models)
    return (profile_several if parsed.configs or parsed.models else profile_one)(parsed, arguments)


def _list(package: str | None) -> int:
    """The networks that a package knows, or the GPUs."""
    console = Console(width=report_columns())
    if package is None:
        print_gpus(console)
    elif package == "types":
        console.entries(listed_models())
    else:
        from swinmr_profiling.models.libraries.spandrel_network import listed_architectures
        from swinmr_profiling.models.restoration.build import listed_networks

        console.entries(listed_networks() if package == "restoration" else listed_architectures())
    return EXIT_PARTIAL if console.failed else EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
