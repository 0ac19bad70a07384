#!/usr/bin/env python3
"""Measures a trained network on a test set, beside what filling with zeros alone gives.

    python test.py --config configs/train_packaged.json
    python test.py --config configs/train_config_large.json --checkpoint SwinMR_G1D30.pth --data-consistency
    python test.py --config configs/train_config_large.json --tile auto

Writes summary.json, slices.csv and pictures.png to `evaluation` in the run's folder. Exit status: 0 done, 2 bad
arguments, config, data or checkpoint, 4 interrupted (what was measured is written), 1 unexpected.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.standard_streams import complain, say
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.options.config_option import config_told_of
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import (
    OneLineParser,
    device,
    non_negative_int,
    positive_int,
)

if TYPE_CHECKING:  # torch is imported once the config is known to be right
    import torch

    from swinmr_profiling.configs import ExperimentConfig
    from swinmr_profiling.training.evaluation.evaluation_tiling import TileRequest


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = OneLineParser(prog="test.py", description="Measure a trained network on a test set.")
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="ours or a published one (default: the run's best.pth, else last.pth)",
    )
    parser.add_argument("--split", choices=("test", "val", "train"), default="test")
    parser.add_argument("--device", type=device, default="auto", help="auto (default), cpu, cuda, cuda:1")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="default: evaluation in the run's folder"
    )
    parser.add_argument(
        "--data-consistency", action="store_true", help="measured k-space replaces the network's"
    )
    parser.add_argument(
        "--lpips-weights", type=Path, metavar="FILE", help="AlexNet backbone; never fetched by itself"
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="only the first N slices")
    parser.add_argument(
        "--tile",
        type=tile_side,
        metavar="N",
        help="images in tiles of N pixels; auto: as the GPU's memory allows",
    )
    parser.add_argument(
        "--tile-overlap",
        type=non_negative_int,
        metavar="N",
        help="pixels that tiles share (default: what the network needs)",
    )
    parser.add_argument("--allow-unknown", action="store_true", help="unknown keys are warnings")
    parser.add_argument("--trust-config", action="store_true", help="let the config import your own class")
    parsed = parser.parse_args(arguments)
    if parsed.tile_overlap is not None and parsed.tile is None:
        parser.error("--tile-overlap: of which tiles? Name --tile N, or --tile auto")
    return parsed


def tile_side(text: str) -> str | int:
    """ "auto", or a whole number of pixels; for `type=`."""
    return text if text == "auto" else positive_int(text)


def tile_request(
    parsed: argparse.Namespace, config: ExperimentConfig, where: torch.device
) -> TileRequest | None:
    """What `--tile` asks for; on a GPU with what fits it now, before anything of this process lies on it."""
    if parsed.tile is None:
        return None
    from swinmr_profiling.training.evaluation.evaluation_tiling import TileRequest

    if parsed.tile != "auto":
        return TileRequest(parsed.tile, parsed.tile_overlap)
    if where.type != "cuda" or config.is_denoiser:
        return TileRequest(None, parsed.tile_overlap)
    from swinmr_profiling.profiler.largest_tile.card_sizes import CardSizes, budget_here

    budget, capability = budget_here(where)
    card = CardSizes(config, budget, capability, trust_config=parsed.trust_config)
    return TileRequest(None, parsed.tile_overlap, card)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse(arguments)
    loaded = config_told_of(parsed)
    # Imported here: a config that is wrong is told at once, without waiting for torch.
    from swinmr_profiling.profiler.measure.machine.devices import resolve_device
    from swinmr_profiling.training.evaluation.evaluation_console import summary_lines
    from swinmr_profiling.training.evaluation.evaluation_run import EvaluationRequest, run_evaluation
    from swinmr_profiling.training.run.stopping import stop_on_signals

    try:
        where = resolve_device(parsed.device)
        request = EvaluationRequest(
            device=where,
            checkpoint=parsed.checkpoint,
            split=parsed.split,
            output=parsed.output,
            data_consistency=parsed.data_consistency,
            lpips_weights=parsed.lpips_weights,
            limit=parsed.limit,
            trust_config=parsed.trust_config,
            tile=tile_request(parsed, loaded.config, where),
        )
        with stop_on_signals() as stop:
            summary, folder = run_evaluation(loaded, request, lambda: stop.signal_name)
    except OSError as error:
        raise InputError(f"{error.filename or parsed.output}: {error.strerror}") from None
    for line in summary_lines(summary, loaded.config.evaluation.metrics):
        say(line)
    if summary["data"]["evaluated_slices"]:
        say(f"written to {folder}")
    for line in summary["not_written"]:
        complain(f"error: not written: {line}")
    if summary["status"] != "complete":
        complain(f"{summary['status_reason']}: the figures are of those alone")
    return EXIT_PARTIAL if summary["not_written"] or summary["status"] != "complete" else EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
