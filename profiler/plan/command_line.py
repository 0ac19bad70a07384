"""The options of plan_training.py."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.batch_size.budget import DEFAULT_HEADROOM, Budget, budget_on
from swinmr_profiling.profiler.batch_size.gpus import MEMORY_HELP, Gpu
from swinmr_profiling.profiler.options.budget_options import gpu_memory, gpu_name, headroom, memory_size
from swinmr_profiling.profiler.options.option_types import OneLineParser, positive_int


class PlanArguments(argparse.Namespace):
    """What was asked for."""

    config: Path
    gpu: Gpu | None
    gpu_memory: tuple[str, int] | None
    batch: int | None
    micro_batch: int | None
    devices: int
    reserved: int
    headroom: Fraction
    allow: list[str]
    row: int | None
    output: Path | None
    allow_unknown: bool
    trust_config: bool
    verbose: bool

    def budget(self, torch_version: str) -> Budget:
        """Of the card."""
        if self.gpu is not None:
            name, size, capability = self.gpu.name, self.gpu.total_bytes, self.gpu.compute_capability
        else:
            assert self.gpu_memory is not None
            name, size, capability = f"{self.gpu_memory[0]} GPU", self.gpu_memory[1], None
        return budget_on(
            name,
            size,
            capability,
            torch_version=torch_version,
            reserved_elsewhere_bytes=self.reserved,
            headroom_share=self.headroom,
        )

    def global_batch(self, config: ExperimentConfig) -> int:
        """--batch, or the config's own.

        Raises ValueError for "auto", where --micro-batch divides it not, and for more than one GPU.
        """
        if self.devices > 1:
            raise ValueError(
                f"--devices {self.devices}: a plan is for one GPU (recommend_batch_size.py --devices predicts several)"
            )
        size = self.batch
        if size is None:
            if not isinstance(config.data.batch_size, int):
                raise ValueError('data.batch_size is "auto": name the global batch with --batch')
            size = config.data.batch_size * config.training.accumulate
        if self.micro_batch is not None and size % self.micro_batch:
            raise ValueError(f"--micro-batch {self.micro_batch} does not divide the batch {size}")
        return size


def parse_plan_arguments(arguments: Sequence[str]) -> PlanArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="plan_training.py",
        description="Plan how a batch trains on a GPU: micro-batch, precision, what to recompute.",
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="FILE")
    card = parser.add_mutually_exclusive_group(required=True)
    card.add_argument("--gpu", type=gpu_name, metavar="NAME", help='a GPU by name, as "RTX 3060 12GB"')
    card.add_argument("--gpu-memory", type=gpu_memory, metavar="SIZE", help=(
        f"a GPU by its memory as CUDA reports it ({MEMORY_HELP})"
    ))  # fmt: skip
    add("--batch", type=positive_int, metavar="N", help=(
        "global batch of an optimizer step (default: the config's)"
    ))  # fmt: skip
    add("--micro-batch", type=positive_int, metavar="N", help="only this micro-batch (default: all divisors)")
    add(
        "--devices",
        type=positive_int,
        default=1,
        metavar="N",
        help="GPUs: a plan is for one, more are refused",
    )
    add("--reserved", type=memory_size, default=0, metavar="SIZE", help="memory of it that others take")
    add("--headroom", type=headroom, default=DEFAULT_HEADROOM, metavar="SHARE", help=(
        f"share of the rest that stays free (default {float(DEFAULT_HEADROOM):.0%}%)"
    ))  # fmt: skip
    add("--allow", action="append", choices=("patch",), default=[], help=(
        "also settings that train another model: a smaller patch"
    ))  # fmt: skip
    add("--row", type=positive_int, metavar="N", help="the setting of the table to write (default 1)")
    add("--output", type=Path, metavar="FILE", help="write the plan, for training.plan and apply_plan")
    add("--allow-unknown", action="store_true", help="unknown keys are warnings")
    add("--trust-config", action="store_true", help="let the config import your own class")
    add("--verbose", action="store_true", help="also each micro-batch as it is planned, and all names")
    return parser.parse_args(arguments, namespace=PlanArguments())
