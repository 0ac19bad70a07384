"""`swinmr-profile init`: the example configs as files to edit, in ./configs; what is there stays as it is."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

import swinmr_profiling.command
from swinmr_profiling.configs.writing.atomic_files import OutputError, reason, write_text
from swinmr_profiling.configs.writing.standard_streams import say
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE
from swinmr_profiling.profiler.options.option_types import OneLineParser

# As in a checkout: their `../results` is ./results then.
FOLDER = Path("configs")


def examples() -> dict[str, str]:
    """Name and text of every example."""
    found = (entry for entry in files("swinmr_profiling.configs").iterdir() if entry.name.endswith(".json"))
    return {
        entry.name: entry.read_text(encoding="utf-8") for entry in sorted(found, key=lambda entry: entry.name)
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = OneLineParser(prog="init_configs.py", description="Write the example configs to ./configs.")
    return parser.parse_args(arguments)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parse(arguments)
    try:
        FOLDER.mkdir(exist_ok=True)
        for name, text in examples().items():
            file = FOLDER / name
            if file.exists() or file.is_symlink():
                say(f"{file}: is there, left as it is")
                continue
            write_text(file, text)
            say(f"{file}: written")
    except OSError as error:
        raise OutputError(f"{FOLDER}: {reason(error)}") from None
    say("next: swinmr-profile profile --config configs/train_config.json --batch-sizes 1,4,8")
    return EXIT_DONE
