#!/usr/bin/env python3
"""Writes the weights of a checkpoint as the scripts of SwinIR, SwinMR, KAIR and other programs load them.

    python scripts/export_checkpoint.py results/swinmr_60/checkpoints/best.pth swinmr_60.pth
    python scripts/export_checkpoint.py best.pth swinmr_60.safetensors --weights ema
    python scripts/export_checkpoint.py 50000_G.pth lightning.ckpt --config swinmr.json --form lightning --prefix net.

Exit status: 0 done, 2 bad arguments, config or checkpoint, 4 interrupted, or refused by the machine, 1 unexpected.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.output_claims import claimed_outputs
from swinmr_profiling.configs.writing.standard_streams import say
from swinmr_profiling.profiler.options.config_option import config_told_of
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE
from swinmr_profiling.profiler.options.option_types import parse_options


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_options(
        argparse.ArgumentParser(
            prog="export_checkpoint.py", description="Write weights as other programs load them."
        ),
        arguments,
        {
            "checkpoint": dict(
                type=Path, metavar="CHECKPOINT", help="ours, or a published one with --config"
            ),
            "output": dict(
                type=Path, metavar="OUTPUT", help=".pth or .ckpt; .safetensors writes that format"
            ),
            "--config": dict(metavar="FILE", help="of the network (default: the one in the checkpoint)"),
            "--form": dict(
                choices=("wrapped", "plain", "lightning"),
                default="wrapped",
                help="params and params_ema (default), the tensors alone, or state_dict with a prefix",
            ),
            "--weights": dict(
                choices=("ema", "trained"),
                help="the averaged weights or those that were trained (default: both where both fit, else averaged)",
            ),
            "--prefix": dict(default="model.", help="of the names in the form lightning (default: model.)"),
            "--allow-unknown": dict(action="store_true", help="unknown keys are warnings"),
            "--trust-config": dict(action="store_true", help="let the config import your own class"),
        },
    )
    with claimed_outputs([("OUTPUT", parsed.output)]) as (output,):
        config = None if parsed.config is None else config_told_of(parsed).config
        from swinmr_profiling.training.run.checkpoint_export import ExportRequest, export_checkpoint

        request = ExportRequest(
            parsed.checkpoint,
            Path(str(output)),
            form=parsed.form,
            weights=parsed.weights,
            prefix=parsed.prefix,
            trust_config=parsed.trust_config,
        )
        first, *others = export_checkpoint(request, config)
        for line in (f"{output}: {first}", *others):
            say(line)
    return EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
