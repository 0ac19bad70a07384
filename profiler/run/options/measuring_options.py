"""Options of `profile_model.py` about what is measured, counted and predicted."""

from __future__ import annotations

import argparse
import re
from typing import Any

from swinmr_profiling.profiler.measure.timing.latency import (
    DEFAULT_RUNS,
    DEFAULT_TIME_BUDGET_S,
    DEFAULT_WARMUP_RUNS,
)
from swinmr_profiling.profiler.options.budget_options import memory_size
from swinmr_profiling.profiler.options.option_types import (
    Options,
    at_least,
    device,
    non_negative_int,
    positive_int,
    positive_seconds,
)
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE, MIN_TRAINING_STEPS
from swinmr_profiling.profiler.run.steps.sweep import DEFAULT_BATCH_SIZES

MAX_IMAGE_SIDE = 65536


class BatchSizes(argparse.Action):
    """ "1,4,8" and "1 4 8" -> [1, 4, 8]; anything but distinct positive integers is an error."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            setattr(namespace, self.dest, batch_sizes(",".join(values)))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def batch_sizes(text: str) -> list[int]:
    """ "1,4,8" -> [1, 4, 8]. Raises ArgumentTypeError for anything but distinct positive integers."""
    sizes = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[+-]?\d+\s*", part):
            shown = repr(part.strip()) if part.strip() else "an empty entry"
            raise argparse.ArgumentTypeError(f"{shown} in {text!r}: give whole numbers such as 1,4,8")
        size = int(part)
        if not 1 <= size <= MAX_BATCH_SIZE:
            raise argparse.ArgumentTypeError(f"{size} in {text!r}: a batch is 1 to {MAX_BATCH_SIZE}")
        if size in sizes:
            raise argparse.ArgumentTypeError(f"{size} is twice in {text!r}")
        sizes.append(size)
    return sizes


def image_size(text: str) -> list[int]:
    """ "256" or "256x320" (height x width) -> [height, width] in pixels."""
    match = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", text)
    sides = [int(side) for side in match.groups() if side] if match else []
    if not sides or not all(1 <= side <= MAX_IMAGE_SIDE for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r}: give pixels, such as 256 or 256x320 (height x width)")
    return sides * 2 if len(sides) == 1 else sides


def training_steps(text: str) -> int:
    """A number of optimizer steps that shows the memory of training: at least 3."""
    return at_least(text, MIN_TRAINING_STEPS)


# What is run and how.
MEASURING: Options = {
    "--batch-sizes": dict(
        nargs="+",
        action=BatchSizes,
        metavar="N",
        help=f"1,4,8 or 1 4 8 (default {','.join(map(str, DEFAULT_BATCH_SIZES))}; on a CPU what fits two minutes)",
    ),
    "--device": dict(type=device, default="auto", help="auto (default; falls back), cpu, cuda, cuda:1"),
    "--precision": dict(
        choices=["fp32", "bf16", "fp16"], help="default: the config's system.mixed_precision"
    ),
    "--image-size": dict(type=image_size, metavar="N|HxW", help="pixels, in place of the config's"),
    "--num-runs": dict(
        type=positive_int,
        metavar="N",
        help=f"timed runs of a size (default {DEFAULT_RUNS}, and more until the median is sure, within the budget)",
    ),
    "--warmup": dict(
        type=non_negative_int,
        metavar="N",
        help=f"warm-up runs of a size (default {DEFAULT_WARMUP_RUNS}, within a fifth of the budget)",
    ),
    "--time-budget": dict(
        type=positive_seconds,
        default=DEFAULT_TIME_BUDGET_S,
        metavar="S",
        help=f"seconds a size without --num-runs (default {DEFAULT_TIME_BUDGET_S:g})",
    ),
    "--timeout": dict(
        type=positive_seconds,
        metavar="S",
        help="when a size is given up as hung (default: ten times what is expected, 30 minutes at least)",
    ),
    "--by-module": dict(action="store_true", help="also each module, in runs of their own"),
    "--energy": dict(action="store_true", help="also joules per image and step (NVML, RAPL)"),
    "--loader": dict(action="store_true", help="also the time of the config's own data loader"),
    "--channels-last": dict(action="store_true", help="channels-last memory format"),
    "--compile": dict(action="store_true", help="torch.compile the network before it is timed"),
    "--seed": dict(type=non_negative_int, metavar="N", help="of the random weights (default: the config's)"),
    "--threads": dict(type=positive_int, metavar="N", help="CPU threads (default: the config's or torch's)"),
    "--with-lpips": dict(action="store_true", help="also the cost of the LPIPS metric"),
    "--memory-limit": dict(
        type=memory_size,
        metavar="SIZE",
        help="host memory of a measuring or predicting process, such as 8GiB; one that holds more is ended, its size "
        "counts as out of memory (default: what is free)",
    ),
}


# The multiply-adds.
COUNTING: Options = {
    "--cross-check": dict(
        choices=["off", "small", "full"],
        default="small",
        help="ask fvcore and thop at a small input (default), at the full one, or not",
    ),
    "--flops-counter": dict(choices=["fvcore", "thop"], help="also its own full-size figure, to quote"),
    "--strict-flops": dict(action="store_true", help="exit 5 if an operator has no formula"),
    "--depth": dict(
        type=non_negative_int, default=0, metavar="N", help="print the module tree, N levels deep"
    ),
}


# The memory of training.
TRAINING: Options = {
    "--predict-only": dict(action="store_true", help="predict training in every setting, no latency"),
    "--no-training": dict(action="store_true", help="neither predict nor measure training"),
    "--measure-training": dict(action="store_true", help="measure training on a CPU too (on a GPU always)"),
    "--training-steps": dict(
        type=training_steps,
        default=MIN_TRAINING_STEPS,
        metavar="N",
        help=f"optimizer steps of each measured training (default and least {MIN_TRAINING_STEPS})",
    ),
    "--no-cache": dict(
        action="store_true", help="neither read nor keep traces and counts in ~/.cache/swinmr-profiling"
    ),
    "--list-gpus": dict(action="store_true", help="list the known GPUs and exit"),
}
