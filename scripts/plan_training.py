#!/usr/bin/env python3
"""Plans how a global batch trains on a GPU that is too small for it as it is: micro-batch, precision, recomputation.

    python scripts/plan_training.py --config configs/train_config.json --gpu "RTX 3060 12GB" --batch 8
    python scripts/plan_training.py --config configs/train_config.json --gpu-memory 8GiB --batch 8 --output plan.json

Exit status: 0 done, 2 bad file or arguments, 3 nothing fits (the nearest setting is printed), 4 the network cannot be
traced or the answer could not be printed, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs import ConfigError, load_config
from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, distinct, reason
from swinmr_profiling.configs.writing.standard_streams import complain, replace_unknown_characters
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_NOTHING_FITS,
    EXIT_PARTIAL,
)
from swinmr_profiling.profiler.plan.command_line import PlanArguments, parse_plan_arguments
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns


def plan_training(parsed: PlanArguments, console: Console) -> int:
    """Plans, prints, writes. Raises what `main` turns into one line."""
    loaded = load_config(parsed.config, allow_unknown=parsed.allow_unknown)
    for message in loaded.messages:
        complain(message)
    if parsed.output is not None:
        distinct([("--output", parsed.output)], [("--config", parsed.config)])
        check_writable(parsed.output, "--output")
    # Imported here: a config that is wrong is told at once, without waiting for torch.
    import torch

    from swinmr_profiling.models.errors import ModelError
    from swinmr_profiling.profiler.plan.console import print_plan
    from swinmr_profiling.profiler.plan.plan_file import write_plan
    from swinmr_profiling.profiler.plan.training_plan import TrainingPlanner
    from swinmr_profiling.profiler.record.failures import first_lines
    from swinmr_profiling.training.errors import LossError, OptimizerError

    torch.set_num_threads(1)  # nothing is computed
    budget, global_batch = parsed.budget(torch.__version__), parsed.global_batch(loaded.config)
    try:
        planner = TrainingPlanner(
            loaded.config,
            budget,
            global_batch,
            trust_config=parsed.trust_config,
            allow_patch="patch" in parsed.allow,
            only_micro_batch=parsed.micro_batch,
            on_event=complain if parsed.verbose else lambda text: None,
        )
        plan = planner.plan(str(parsed.config))
    except (ConfigError, LossError, ModelError, OptimizerError):
        raise
    except Exception as error:  # whatever a network raises that asks its tensors for values
        complain(f"error: the step cannot be traced: {type(error).__name__}: {first_lines(str(error))}")
        return EXIT_PARTIAL
    if parsed.row is not None and parsed.row > len(plan.settings):
        complain(f"error: --row {parsed.row}: the plan has {len(plan.settings)} settings")
        return EXIT_BAD_INPUT
    plan = plan.model_copy(update={"chosen": (parsed.row or 1) - 1})
    print_plan(console, plan)
    if not plan.setting.fits:
        complain(f"error: nothing fits {plan.budget.name}; the nearest setting is printed")
        return EXIT_NOTHING_FITS
    if parsed.output is not None:
        try:
            write_plan(parsed.output, plan)
        except OSError as error:
            raise OutputError(f"--output: {parsed.output} {reason(error)}") from None
        console.line()
        console.good(f"plan written to {parsed.output}; training.plan in a config takes it", indent=0)
    return EXIT_DONE


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    replace_unknown_characters()
    parsed = parse_plan_arguments(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=report_columns(), verbose=parsed.verbose)
    try:
        code = plan_training(parsed, console)
    except (ConfigError, OutputError, ValueError) as error:
        complain(f"error: {error}")
        return EXIT_BAD_INPUT
    return EXIT_PARTIAL if code == EXIT_DONE and console.failed else code


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
