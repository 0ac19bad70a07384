#!/usr/bin/env python3
"""Holds the predicted memory of training against a GPU, in at most eight minutes: one JSON, one table.

    python scripts/check_on_gpu.py
    python scripts/check_on_gpu.py --time-budget 300 --output results/gpu_check.json
    python scripts/check_on_gpu.py --dry-run

Each combination has a process of its own; what does not fit into the time is recorded as not run. Exit status: 0 done,
2 bad arguments or no GPU, 4 a combination failed that should not have, or nothing was measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.atomic_files import OutputError
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.gpu_check.check import GpuCheck
from swinmr_profiling.profiler.gpu_check.combinations import dry_combinations, gpu_combinations
from swinmr_profiling.profiler.gpu_check.measured import table
from swinmr_profiling.profiler.gpu_check.reference import Network
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import (
    OneLineParser,
    device,
    parse_options,
    positive_seconds,
)
from swinmr_profiling.profiler.record.files.earlier_results import gpu_check_results
from swinmr_profiling.profiler.record.files.result_file import ResultFile

DEFAULT_OUTPUT = "results/gpu_check.json"
DEFAULT_TIME_BUDGET_S = 480.0
PUBLISHED = Network(side=256, embed_dim=180, groups=6, batch_size=1)
TINY = Network(side=16, embed_dim=12, groups=1, batch_size=1)
GOOD = ("measured", "not run")


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse_options(
        OneLineParser(prog="check_on_gpu.py", description=__doc__.splitlines()[0]),
        arguments,
        {
            "--device": dict(type=device, default="cuda", help="the GPU (default cuda, the first)"),
            "--time-budget": dict(
                type=positive_seconds, default=DEFAULT_TIME_BUDGET_S, metavar="S", help="default 480"
            ),
            "--output": dict(default=DEFAULT_OUTPUT, metavar="FILE", help=f"default {DEFAULT_OUTPUT}"),
            "--only": dict(metavar="TEXT", help="only the combinations whose name contains this"),
            "--dry-run": dict(
                action="store_true", help="small networks on the CPU: the same code, figures of the host"
            ),
        },
    )
    combinations = dry_combinations() if options.dry_run else gpu_combinations()
    if options.only is not None:
        combinations = [c for c in combinations if options.only in c.name]
    result = ResultFile(options.output, gpu_check_results)
    said = sys.stderr if result.to_standard_output else sys.stdout
    try:
        if not combinations:
            raise OutputError(f"--only {options.only}: no combination is called so")
        result.prepare()
        check = GpuCheck(
            combinations,
            device="cpu" if options.dry_run else options.device,
            time_budget_s=options.time_budget,
            reference=TINY if options.dry_run else PUBLISHED,
            on_change=lambda record: result.save(record.to_json()),
        )
        record = check.run()
    except WorkerError as error:
        complain(f"error: {error.failure.error}: {error.failure.detail}")
        return EXIT_PARTIAL
    print(table(record.combinations), file=said)
    if options.dry_run:
        print("dry run: measured figures are the CPU process's resident memory", file=said)
    elsewhere = result.finish(record.to_json())
    if elsewhere is not None:
        complain(f"error: {elsewhere}")
        return EXIT_PARTIAL
    if result.kept_earlier:
        print(f"Nothing new was measured: {result.name} stays as it was", file=said)
    else:
        print(f"Results saved to: {result.name}", file=said)
    failed = [row.name for row in record.combinations if row.status not in GOOD and not row.as_expected]
    if failed:
        complain(f"error: failed: {', '.join(failed)}")
        return EXIT_PARTIAL
    if not any(row.status == "measured" or row.as_expected for row in record.combinations):
        complain("error: nothing was measured: give it more time (--time-budget)")
        return EXIT_PARTIAL
    return EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
