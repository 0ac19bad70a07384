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
from swinmr_profiling.configs import ConfigError
from swinmr_profiling.configs.writing.atomic_files import write_text
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.largest_tile.command_line import parse_fit_arguments
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_NOTHING_FITS, EXIT_PARTIAL
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Searches, prints, writes; returns the exit status. Raises InputError."""
    parsed = parse_fit_arguments(arguments)
    console = Console(width=report_columns(), verbose=parsed.verbose)
    loaded = parsed.read_config()
    # Imported here: a config that is wrong is told at once, without waiting for torch.
    from swinmr_profiling.models.errors import ModelError
    from swinmr_profiling.profiler.largest_tile.card_sizes import budget_asked, settings_asked
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
            on_event=parsed.tell,
        )
    except (ConfigError, ModelError):
        raise
    except Exception as error:  # whatever a network raises that asks its tensors for values
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        complain(f"error: the network cannot be traced: {kind}{first_lines(str(error))}")
        return EXIT_PARTIAL
    print_fit(console, found)
    written = parsed.write(lambda file: write_text(file, found.model_dump_json(indent=2) + "\n"))
    if written is not None:
        console.line()
        console.good(f"written to {written}", indent=0)
    if all(setting.largest is None for setting in found.settings):
        complain(f"error: no image fits {budget.name}, not even of {found.period} pixels a side")
        return EXIT_NOTHING_FITS
    return EXIT_PARTIAL if console.failed else EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
