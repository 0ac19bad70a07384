#!/usr/bin/env python3
"""How fast training runs, and whether the loader keeps ahead of the step; prints, asserts nothing.

    python scripts/benchmark_training.py --config configs/train_packaged.json --steps 50

Goal: under 2 % of the time spent waiting for data.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.profiler.options.option_types import OneLineParser, device, parse_options
from swinmr_profiling.training.distributed import open_world
from swinmr_profiling.training.run.loop import TrainingRun
from swinmr_profiling.training.run.stopping import stop_on_signals


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Trains a few steps into a temporary folder, once for each number of loader processes."""
    options = parse_options(
        OneLineParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--config": dict(default="configs/train_packaged.json"),
            "--steps": dict(type=int, default=50),
            "--device": dict(type=device, default="auto"),
            "--workers": dict(default="0,1,2", help="numbers of loader processes to compare"),
        },
    )
    raw = load_config(options.config).config.model_dump(mode="json")
    raw["training"].update(
        total_steps=options.steps, epochs=None, validate_every_steps=10**9, checkpoint_every_steps=10**9
    )
    raw["logging"]["tensorboard"] = False
    print(
        f"{options.config}, {options.steps} steps, {torch.get_num_threads()} threads, device {options.device}",
        f"{'loader processes':>16} {'images/s':>10} {'waiting for data':>17}",
        sep="\n",
    )
    for workers in options.workers.split(","):
        with tempfile.TemporaryDirectory() as folder, open_world(options.device) as world:
            raw["paths"] = {"root": folder}
            raw["data"]["num_workers"] = int(workers)
            # The validation at the last step is not training: without a validation set there is none.
            with stop_on_signals() as stop:
                run = TrainingRun(config_from_dict(raw), world, stop)
                run.val_loader = None
                result = run.run()
        print(f"{workers:>16} {result.images_per_second:>10.2f} {result.data_wait_share:>17.2%}", flush=True)
        if result.stopped_by is not None:
            return 4
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
