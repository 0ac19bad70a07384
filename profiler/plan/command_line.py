"""The options of plan_training.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.options.card_options import (
    CardArguments,
    add_answer_options,
    add_named_card,
    add_share_of_card,
)
from swinmr_profiling.profiler.options.option_types import OneLineParser, positive_int


class PlanArguments(CardArguments):
    """What was asked for."""

    batch: int | None
    micro_batch: int | None
    devices: int
    allow: list[str]
    row: int | None

    def global_batch(self, config: ExperimentConfig) -> int:
        """--batch, or the config's own.

        Raises InputError for "auto", where --micro-batch divides it not, and for more than one GPU.
        """
        if self.devices > 1:
            raise InputError(
                f"--devices {self.devices}: a plan is for one GPU (recommend_batch_size.py --devices predicts several)"
            )
        size = self.batch
        if size is None:
            if not isinstance(config.data.batch_size, int):
                raise InputError('data.batch_size is "auto": name the global batch with --batch')
            size = config.data.batch_size * config.training.accumulate
        if self.micro_batch is not None and size % self.micro_batch:
            raise InputError(f"--micro-batch {self.micro_batch} does not divide the batch {size}")
        return size


def parse_plan_arguments(arguments: Sequence[str]) -> PlanArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="plan_training.py",
        description="Plan how a batch trains on a GPU: micro-batch, precision, what to recompute.",
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="FILE")
    add_named_card(parser.add_mutually_exclusive_group(required=True))
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
    add_share_of_card(parser)
    add("--allow", action="append", choices=("patch",), default=[], help=(
        "also settings that train another model: a smaller patch"
    ))  # fmt: skip
    add("--row", type=positive_int, metavar="N", help="the setting of the table to write (default 1)")
    add_answer_options(
        parser,
        output="write the plan, for training.plan and apply_plan",
        verbose="also each micro-batch as it is planned, and all names",
    )
    return parser.parse_args(arguments, namespace=PlanArguments())
