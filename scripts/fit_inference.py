#!/usr/bin/env python3
"""Finds the largest image or tile that infers on a GPU, in each precision and memory format, and the tiles of an image.

    python scripts/fit_inference.py --config configs/train_config_large.json --gpu "RTX 3060 12GB"
    python scripts/fit_inference.py --config configs/train_config.json --gpu-memory 8GiB --image 2048x1536

Exit status: 0 done, 2 bad file or arguments, 3 nothing fits, 4 the network cannot be traced or the answer could not be
printed, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs import ConfigError, load_config
from swinmr_profiling.configs.writing.atomic_files import (
    OutputError,
    check_writable,
    distinct,
    reason,
    write_text,
)
from swinmr_profiling.configs.writing.standard_streams import complain, replace_unknown_characters
from swinmr_profiling.profiler.largest_tile.command_line import FitArguments, parse_fit_arguments
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_NOTHING_FITS,
    EXIT_PARTIAL,
)
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns


def fit(parsed: FitArguments, console: Console) -> int:
    """Searches, prints, writes. Raises what `main` turns into one line."""
    loaded = load_config(parsed.config, allow_unknown=parsed.allow_unknown)
    for message in loaded.messages:
        complain(message)
    if parsed.output is not None:
        distinct([("--output", parsed.output)], [("--config", parsed.config)])
        check_writable(parsed.output, "--output")
    # Imported here: a config that is wrong is told at once, without waiting for torch.
    from swinmr_profiling.models.errors import ModelError
    from swinmr_profiling.profiler.largest_tile.asked import budget_asked, settings_asked
    from swinmr_profiling.profiler.largest_tile.console import print_fit
    from swinmr_profiling.profiler.largest_tile.inference_fit import fit_inference
    from swinmr_profiling.profiler.record.failures import first_lines

    budget, capability = budget_asked(parsed)
    settings = settings_asked(parsed, loaded.config, budget)
    try:
        found = fit_inference(
            loaded.config,
            budget,
            config_file=str(parsed.config),
            settings=settings,
            batch_size=parsed.batch,
            image_hw=parsed.image,
            of_image_aspect=parsed.aspect == "image",
            compute_capability=capability,
            trust_config=parsed.trust_config,
            on_event=complain if parsed.verbose else lambda text: None,
        )
    except (ConfigError, ModelError, ValueError) as error:
        if isinstance(error, (ConfigError, ModelError)):
            raise
        complain(f"error: the network cannot be traced: {first_lines(str(error))}")
        return EXIT_PARTIAL
    except Exception as error:  # whatever a network raises that asks its tensors for values
        complain(f"error: the network cannot be traced: {type(error).__name__}: {first_lines(str(error))}")
        return EXIT_PARTIAL
    print_fit(console, found)
    if parsed.output is not None:
        try:
            write_text(parsed.output, found.model_dump_json(indent=2) + "\n")
        except OSError as error:
            raise OutputError(f"--output: {parsed.output} {reason(error)}") from None
        console.line()
        console.good(f"written to {parsed.output}", indent=0)
    if all(setting.largest is None for setting in found.settings):
        complain(f"error: no image fits {budget.name}, not even of {found.period} pixels a side")
        return EXIT_NOTHING_FITS
    return EXIT_DONE


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    replace_unknown_characters()
    parsed = parse_fit_arguments(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=report_columns(), verbose=parsed.verbose)
    try:
        code = fit(parsed, console)
    except (ConfigError, OutputError, ValueError) as error:
        complain(f"error: {error}")
        return EXIT_BAD_INPUT
    return EXIT_PARTIAL if code == EXIT_DONE and console.failed else code


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
