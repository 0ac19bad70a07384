"""The options of `profile_pipeline.py`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from swinmr_profiling.profiler.measure.machine.devices import PRECISIONS
from swinmr_profiling.profiler.options.option_types import OneLineParser, positive_int
from swinmr_profiling.profiler.pipelines.defined.cost_records import PipelineRequest

DEFAULT_OUTPUT = "results/pipeline_results.json"


def finite_number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise argparse.ArgumentTypeError(f"{text!r}: a number")
    return value


def guidance_scale(text: str) -> float:
    """A guidance scale of at least 1, where 1 means none."""
    value = finite_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least 1, and 1 means no guidance")
    return value


class PipelineArguments(argparse.Namespace):
    """The parsed options."""

    def request(self) -> PipelineRequest:
        """What is asked of every pipeline. One side given alone is both."""
        return PipelineRequest(
            height=self.height or self.width,
            width=self.width or self.height,
            steps=self.steps,
            guidance_scale=self.guidance_scale,
            true_cfg_scale=self.true_cfg_scale,
            batch=self.batch,
            scheduler=self.scheduler,
            prompt_tokens=self.prompt_tokens,
            negative_prompt=self.negative_prompt,
            precision=self.precision,
        )


def parse_pipeline_arguments(arguments: Sequence[str]) -> PipelineArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="profile_pipeline.py",
        description="Cost diffusion pipelines component by component, exactly and without their weights.",
    )
    which = parser.add_argument_group("which").add_mutually_exclusive_group(required=True)
    which.add_argument("--pipeline", metavar="NAME", help="one pipeline (--list)")
    which.add_argument("--pipelines", nargs="+", metavar="NAME", help="several, compared")
    which.add_argument("--all", action="store_true", help="all of them, compared")
    which.add_argument("--pipeline-dir", metavar="DIR", help="a local folder of the diffusers layout")
    which.add_argument("--list", action="store_true", dest="list_pipelines", help="print the names")
    add = parser.add_argument
    add("--height", type=positive_int, metavar="PX", help="default: what the checkpoint was trained on")
    add("--width", type=positive_int, metavar="PX", help="default: the height")
    add("--steps", type=positive_int, metavar="N", help="default: the pipeline's own")
    add(
        "--guidance-scale", type=guidance_scale, metavar="X", help="1 means none; default: the pipeline's own"
    )
    add("--true-cfg-scale", type=guidance_scale, default=1.0, metavar="X", help=(
        "above 1 a distilled pipeline (FLUX) also runs on the negative prompt"
    ))  # fmt: skip
    add("--batch", type=positive_int, default=1, metavar="N", help="prompts, and images, of one run")
    add("--scheduler", metavar="NAME", help="DDIM, PNDM, Heun, Euler, DPM++ 2M, ... in place of its own")
    add("--prompt-tokens", type=positive_int, metavar="N", help=(
        "length of the prompt for T5 and language models; CLIP always pads to 77"
    ))  # fmt: skip
    add(
        "--negative-prompt", action="store_true", help="one is given: SDXL and Kandinsky 3 then encode it too"
    )
    add("--precision", choices=list(PRECISIONS), default="bf16", help="for the memory (default bf16)")
    add(
        "--detailed",
        action="store_true",
        help="also scaling with steps (10 to 50) and resolution (512 to 1024)",
    )
    add(
        "--output",
        default=DEFAULT_OUTPUT,
        metavar="FILE",
        help=f"JSON (default {DEFAULT_OUTPUT}; - for stdout)",
    )
    add("--csv", metavar="FILE", help="a line per component")
    add("--chart", metavar="FILE", help="a bar chart, PNG")
    add(
        "--measure",
        action="store_true",
        help="with --pipeline-dir: load the weights, count one run as it happens and time another",
    )
    parsed = parser.parse_args(arguments, namespace=PipelineArguments())
    if parsed.measure and not parsed.pipeline_dir:
        parser.error("--measure needs the weights: name a folder with --pipeline-dir")
    return parsed
