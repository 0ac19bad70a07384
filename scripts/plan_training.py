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
from swinmr_profiling.configs import ConfigError
from swinmr_profiling.configs.writing.atomic_files import write_text
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_NOTHING_FITS, EXIT_PARTIAL
from swinmr_profiling.profiler.plan.command_line import parse_plan_arguments
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Plans, prints, writes; returns the exit status. Raises InputError."""
    parsed = parse_plan_arguments(arguments)
    console = Console(width=report_columns(), verbose=parsed.verbose)
    loaded = parsed.read_config()
    # Imported here: a config that is wrong is told at once, without waiting for torch.
    import torch

    from swinmr_profiling.models.errors import ModelError
    from swinmr_profiling.profiler.plan.console import print_plan
    from swinmr_profiling.profiler.plan.training_plan import TrainingPlanner
    from swinmr_profiling.profiler.record.failures import first_lines
    from swinmr_profiling.training.errors import LossError, OptimizerError

    torch.set_num_threads(1)  # nothing is computed
    card = parsed.card
    assert card is not None  # an option that must be given
    budget, global_batch = parsed.budget(card, torch.__version__), parsed.global_batch(loaded.config)
    try:
        planner = TrainingPlanner(
            loaded.config,
            budget,
            global_batch,
            trust_config=parsed.trust_config,
            allow_patch="patch" in parsed.allow,
            only_micro_batch=parsed.micro_batch,
            on_event=parsed.tell,
        )
        plan = planner.plan(str(parsed.config))
    except (ConfigError, LossError, ModelError, OptimizerError):
        raise
    except Exception as error:  # whatever a network raises that asks its tensors for values
        complain(f"error: the step cannot be traced: {type(error).__name__}: {first_lines(str(error))}")
        return EXIT_PARTIAL
    if parsed.row is not None and parsed.row > len(plan.settings):
        raise InputError(f"--row {parsed.row}: the plan has {len(plan.settings)} settings")
    plan = plan.model_copy(update={"chosen": (parsed.row or 1) - 1})
    print_plan(console, plan)
    if not plan.setting.fits:
        complain(f"error: nothing fits {plan.budget.name}; the nearest setting is printed")
        return EXIT_NOTHING_FITS
    written = parsed.write(lambda file: write_text(file, plan.model_dump_json(indent=2) + "\n"))
    if written is not None:
        console.line()
        console.good(f"plan written to {written}; training.plan in a config takes it", indent=0)
    return EXIT_PARTIAL if console.failed else EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
