"""The options of fit_inference.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from swinmr_profiling.profiler.largest_tile.record import Layout
from swinmr_profiling.profiler.options.card_options import (
    CardArguments,
    add_answer_options,
    add_named_card,
    add_share_of_card,
)
from swinmr_profiling.profiler.options.option_types import OneLineParser, device, positive_int
from swinmr_profiling.profiler.record.blocks.figures import Precision

LONGEST = 10**6


class FitArguments(CardArguments):
    """What was asked for."""

    device: str
    batch: int
    precision: list[Precision] | None
    layout: list[Layout]
    image: tuple[int, int] | None
    aspect: str


def image_size(text: str) -> tuple[int, int]:
    """(height, width) of "512x640" or "512"; for `type=`."""
    match = re.fullmatch(r"\s*(\d{1,7})(?:\s*[x×]\s*(\d{1,7}))?\s*", text)
    sides = None if match is None else (int(match[1]), int(match[2] or match[1]))
    if sides is None or not all(1 <= side <= LONGEST for side in sides):
        raise argparse.ArgumentTypeError(
            f"{text!r}: HEIGHTxWIDTH in pixels, such as 512x640, at most {LONGEST:,}"
        )
    return sides


def _names_of(known: Sequence[str]):
    def names(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",")]
        if wrong := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r}: one or more of {','.join(known)}")
        return list(dict.fromkeys(found))

    return names


def parse_fit_arguments(arguments: Sequence[str]) -> FitArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="fit_inference.py",
        description="The largest image or tile that infers on a GPU, and the tiles of an image.",
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="FILE")
    card = parser.add_mutually_exclusive_group()
    add_named_card(card)
    card.add_argument("--device", type=device, default="auto", help="the GPU that is here (default), cuda:1")
    add("--batch", type=positive_int, default=1, metavar="N", help="images at once (default 1)")
    add("--image", type=image_size, metavar="HxW", help="also the tiles of an image of this size")
    add("--aspect", choices=("square", "image"), default="square", help=(
        "proportions of the size: square (default), or those of --image"
    ))  # fmt: skip
    add("--precision", type=_names_of(get_args(Precision)), metavar="LIST", help=(
        "of fp32,bf16,fp16,pure_bf16 (default: the config's, and bf16 where that is fp32)"
    ))  # fmt: skip
    add("--layout", type=_names_of(get_args(Layout)), default=list(get_args(Layout)), metavar="LIST", help=(
        "memory formats (default contiguous,channels_last)"
    ))  # fmt: skip
    add_share_of_card(parser)
    add_answer_options(parser, output="write the answer as JSON", verbose="also what was found on the way")
    parsed = parser.parse_args(arguments, namespace=FitArguments())
    if parsed.aspect == "image" and parsed.image is None:
        parser.error("--aspect image: which one? Name it with --image HxW")
    return parsed
