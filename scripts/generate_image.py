#!/usr/bin/env python3
"""Generates images and videos with local diffusers pipelines and says what each cost.

    python scripts/generate_image.py --model models/sd15 --prompt "a lighthouse" --steps 30
    python scripts/generate_image.py --model models/sd15 --prompt "a lighthouse" --scheduler "DPM++ 2M" --count 4
    python scripts/generate_image.py --models models/sd15 models/pixart --prompt "a lighthouse" --no-profiling

Exit status: 0 done, 2 bad arguments or no model could be used, 4 some of several models failed, 1 unexpected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT, EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import (
    OneLineParser,
    at_least,
    device,
    parse_options,
    positive_int,
)
from swinmr_profiling.profiler.pipelines.command_line import finite_number
from swinmr_profiling.profiler.pipelines.live.generation import (
    CONFIG_NAME,
    RANDOM_SEED,
    generate_image,
    generate_images_sequential,
)
from swinmr_profiling.profiler.pipelines.output.console_report import print_image_profile
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns

__all__ = ["generate_image", "generate_images_sequential", "main"]


def seed(text: str) -> int:
    """A whole number; -1 for a random one."""
    return at_least(text, RANDOM_SEED)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(prog="generate_image.py", description="Generate images and say what each cost.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", metavar="DIR", help="a local pipeline folder of the diffusers layout")
    which.add_argument("--models", nargs="+", metavar="DIR", help="several, one after another")
    return parse_options(
        parser,
        arguments,
        {
            "--prompt": dict(required=True),
            "--negative-prompt": dict(),
            "--height": dict(type=positive_int, metavar="PX", help="default: the pipeline's own"),
            "--width": dict(type=positive_int, metavar="PX", help="default: the pipeline's own"),
            "--steps": dict(type=positive_int, metavar="N", help="default: the pipeline's own"),
            "--guidance-scale": dict(type=finite_number, metavar="X", help="default: the pipeline's own"),
            "--scheduler": dict(
                metavar="NAME", help="DDIM, PNDM, Heun, Euler, DPM++ 2M, ... in place of its own"
            ),
            "--image": dict(
                metavar="FILE", help="where the pipeline starts from one: image to image, image to video"
            ),
            "--count": dict(
                type=positive_int, default=1, metavar="N", help="images of each model, seeds N, N + 1, ..."
            ),
            "--seed": dict(type=seed, help="default, and -1: a random one, which is reported"),
            "--device": dict(type=device, default="auto", help="auto (default), cpu, cuda, cuda:1"),
            "--precision": dict(choices=list(PRECISIONS), help="default: that of the folder's weights"),
            "--output-dir": dict(metavar="DIR", help="default: outputs/<timestamp>"),
            "--time": dict(
                action="store_true", help="run each once more, uncounted, for seconds, TFLOP/s and memory"
            ),
            "--no-profiling": dict(action="store_true", help="generate only"),
            "--allow-download": dict(
                action="store_true", help="let diffusers fetch a model that is not a local folder"
            ),
        },
    )


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse(arguments)
    console = Console(width=report_columns())
    results = generate_images_sequential(
        parsed.models or [parsed.model],
        parsed.prompt,
        output_dir=parsed.output_dir,
        count=parsed.count,
        on_profile=lambda name, profile: print_image_profile(console, name, profile),
        negative_prompt=parsed.negative_prompt,
        height=parsed.height,
        width=parsed.width,
        num_inference_steps=parsed.steps,
        guidance_scale=parsed.guidance_scale,
        seed=parsed.seed,
        device=parsed.device,
        precision=parsed.precision,
        allow_download=parsed.allow_download,
        scheduler=parsed.scheduler,
        image=parsed.image,
        enable_timing=parsed.time,
        enable_profiling=not parsed.no_profiling,
    )
    done = [result for result in results if result["status"] == "done"]
    folder = None
    for result in done:
        console.good(f"{result['image_path']} (seed {result['seed']})", indent=0)
        folder = Path(result["image_path"] or "").parent
    if folder is None:
        return EXIT_BAD_INPUT
    console.good(f"Settings and profiles: {folder / CONFIG_NAME}", indent=0)
    return EXIT_DONE if len(done) == len(results) else EXIT_PARTIAL


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
