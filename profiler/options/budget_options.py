"""The options that describe GPUs and what is to be trained on them, shared by every command that recommends."""

from __future__ import annotations

import argparse
import re
from fractions import Fraction
from typing import NamedTuple, cast, get_args

from swinmr_profiling.configs.sections.strategy import Strategy
from swinmr_profiling.profiler.batch_size.budget import DEFAULT_HEADROOM
from swinmr_profiling.profiler.batch_size.gpus import (
    MEMORY_HELP,
    Gpu,
    GpuNameError,
    MemorySizeError,
    find_gpu,
    parse_bytes,
)
from swinmr_profiling.profiler.options.option_types import Options, positive_int
from swinmr_profiling.profiler.record.blocks.run_description import Gpu as MachineGpu


class Card(NamedTuple):
    """A GPU that may be elsewhere: its name or size as given, its memory as CUDA reports it, its generation."""

    name: str
    total_bytes: int
    compute_capability: str | None = None

    @classmethod
    def of(cls, gpu: Gpu | MachineGpu) -> Card:
        """One of the list, or of a machine."""
        return cls(gpu.name, gpu.total_bytes, gpu.compute_capability)


def named_cards(parsed: argparse.Namespace) -> list[Card]:
    """Those of --gpu and of --gpu-memory."""
    return [*map(Card.of, parsed.gpu), *(Card(f"{text} GPU", size) for text, size in parsed.gpu_memory)]


def gpu_name(text: str) -> Gpu:
    """A card by name; for `type=`."""
    try:
        return find_gpu(text)
    except GpuNameError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory_size(text: str) -> int:
    """Bytes of "24GiB"; for `type=`."""
    try:
        return parse_bytes(text)
    except MemorySizeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def gpu_memory(text: str) -> tuple[str, int]:
    """("24GiB", its bytes), above zero; for `type=`."""
    size = memory_size(text)
    if not size:
        raise argparse.ArgumentTypeError(f'"{text}": a GPU has memory')
    return text.strip(), size


def headroom(text: str) -> Fraction:
    """Share of "10%" or "0.1", exact; for `type=`."""
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%?)\s*", text)
    share = Fraction(match.group(1)) / (100 if match.group(2) else 1) if match else Fraction(1)
    if not share < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a share below 100 %, such as 10% or 0.1")
    return share


STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
OTHER_PARALLELISM = ("tp", "tensor", "pp", "pipeline", "tensor_parallel", "pipeline_parallel")


def strategies(text: str) -> list[Strategy]:
    """The strategies of "ddp,fsdp", each once; for `type=`."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name in OTHER_PARALLELISM:
            raise argparse.ArgumentTypeError(
                f"{name!r}: tensor and pipeline parallel are not predicted: ddp, zero1 or fsdp"
            )
        if name not in STRATEGIES:
            raise argparse.ArgumentTypeError(f"{name!r}: ddp, zero1 or fsdp")
    return cast("list[Strategy]", names)


HOW_MANY_DEVICES = "--strategy: between how many GPUs? For example --devices 4"
# The options that describe GPUs; shared by every command that recommends for one.
BUDGET: Options = {
    "--gpu": dict(
        type=gpu_name,
        action="append",
        default=[],
        metavar="NAME",
        help='a GPU by name, as "RTX 3090"; may be repeated',
    ),
    "--gpu-memory": dict(
        type=gpu_memory,
        action="append",
        default=[],
        metavar="SIZE",
        help=f"a GPU by its memory as CUDA reports it ({MEMORY_HELP}); may be repeated",
    ),
    "--reserved": dict(
        type=memory_size,
        metavar="SIZE",
        help="memory of it that others take, such as 1GiB for a desktop (default: what they hold here)",
    ),
    "--headroom": dict(
        type=headroom,
        default=DEFAULT_HEADROOM,
        metavar="SHARE",
        help=f"share of the rest that stays free (default {float(DEFAULT_HEADROOM):.0%}%)",
    ),
    "--target-batch": dict(
        type=positive_int,
        metavar="N",
        help="global batch of an optimizer step, by accumulation (default: the config's)",
    ),
    "--devices": dict(type=positive_int, default=1, metavar="N", help="GPUs that train together (default 1)"),
    "--strategy": dict(
        type=strategies,
        default=[],
        metavar="NAME[,NAME]",
        help="ddp (default), zero1, fsdp: how --devices train",
    ),
}
