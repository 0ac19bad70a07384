#!/usr/bin/env python3
"""What costing the pipelines costs: seconds and memory of fresh processes; every figure is printed, none asserted.

    python scripts/benchmark_pipelines.py                     # each pipeline at 1024 px, then all at 512 px
    python scripts/benchmark_pipelines.py --pipelines sd15    # these alone
    python scripts/benchmark_pipelines.py --watching          # what watching a run takes, an operator

Goals: one pipeline at 1024 px within 10 s and 1.2 GB resident, importing included; all at 512 px within 90 s; watching
takes 20 us of CPU time an operator, beside running it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.profiler.options.option_types import OneLineParser, parse_options
from swinmr_profiling.profiler.pipelines.defined.definition import list_pipelines
from swinmr_profiling.profiler.pipelines.defined.json_records import WatchedRecord

COMMAND = Path(__file__).resolve().parent / "profile_pipeline.py"
SIDE_PX, ALL_SIDE_PX = 1024, 512
WATCHED = ("StableDiffusionPipeline", "StableDiffusion3Pipeline", "FluxPipeline", "WanPipeline")
PAIRS = 7


def run_fresh(options: list[str]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and peak resident bytes of the command in a process of its own.

    Raises RuntimeError when it fails.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(COMMAND), *options, "--output", "-"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"profile_pipeline.py {' '.join(options)} ended with {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def watching(name: str) -> tuple[int, float, float]:
    """Operators of a run of a tiny pipeline; us of CPU time that each takes more when it is watched, and under torch's
    own FlopCounterMode. Medians of pairs of runs that follow one another."""
    import diffusers
    from torch.utils.flop_counter import FlopCounterMode

    from swinmr_profiling.profiler.compute import create_profiler
    from swinmr_profiling.scripts.tiny_pipelines.pipeline_calls import call_of, components_of

    pipe = getattr(diffusers, name)(**components_of(getattr(diffusers, name)))
    pipe.set_progress_bar_config(disable=True)
    profiler = create_profiler()

    def cpu_seconds(context: AbstractContextManager) -> float:
        arguments = call_of(pipe)
        started = time.process_time()
        with context:
            pipe(**arguments)
        return time.process_time() - started

    cpu_seconds(nullcontext())
    ours, theirs, operators = [], [], 0
    for _ in range(PAIRS):
        plain = cpu_seconds(nullcontext())
        ours.append(cpu_seconds(profiler.watch(pipe)) - plain)
        theirs.append(cpu_seconds(FlopCounterMode(display=False)) - plain)
        record = cast(WatchedRecord, profiler.profile_pipeline(pipe))
        operators = record["operators"]
    return operators, statistics.median(ours) / operators * 1e6, statistics.median(theirs) / operators * 1e6


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the benchmark that the options name."""
    options = parse_options(
        OneLineParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--pipelines": dict(nargs="+", metavar="NAME", default=None),
            "--side": dict(type=int, default=SIDE_PX, metavar="PX"),
            "--watching": dict(action="store_true", help="what watching takes, and nothing else"),
        },
    )
    if options.watching:
        print(
            f"{'tiny pipeline':<32}{'operators':>10}{'watched us':>12}{'FlopCounterMode us':>20}   (goal 20 us)"
        )
        for name in WATCHED:
            operators, ours, theirs = watching(name)
            print(f"{name:<32}{operators:>10}{ours:>12.1f}{theirs:>20.1f}", flush=True)
        return 0
    print(
        f"{'pipeline':<22}{'seconds':>9}{'CPU s':>9}{'peak GB':>9}   ({options.side} px; goal 10 s, 1.2 GB)"
    )
    for name in options.pipelines or list_pipelines():
        seconds, cpu_seconds, peak = run_fresh(["--pipeline", name, "--height", str(options.side)])
        print(f"{name:<22}{seconds:>9.2f}{cpu_seconds:>9.2f}{peak / 1e9:>9.2f}", flush=True)
    if options.pipelines is None:
        seconds, cpu_seconds, peak = run_fresh(["--all", "--height", str(ALL_SIDE_PX), "--steps", "30"])
        print(f"{'--all, 512 px':<22}{seconds:>9.2f}{cpu_seconds:>9.2f}{peak / 1e9:>9.2f}   (goal 90 s)")
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
