#!/usr/bin/env python3
"""What costing the pipelines costs: seconds and memory of fresh processes; every figure is printed, none asserted.

    python scripts/benchmark_pipelines.py                     # each pipeline at 1024 px, then all at 512 px
    python scripts/benchmark_pipelines.py --pipelines sd15    # these alone

Goals: one pipeline at 1024 px within 10 s and 1.2 GB resident, importing included; all at 512 px within 90 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.profiler.options.option_types import OneLineParser
from swinmr_profiling.profiler.pipelines.defined.definition import list_pipelines

COMMAND = Path(__file__).resolve().parent / "profile_pipeline.py"
SIDE_PX, ALL_SIDE_PX = 1024, 512


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


def main() -> int:
    """Runs the benchmark that the options name."""
    replace_unknown_characters()
    parser = OneLineParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipelines", nargs="+", metavar="NAME", default=None)
    parser.add_argument("--side", type=int, default=SIDE_PX, metavar="PX")
    arguments = parser.parse_args()
    print(
        f"{'pipeline':<22}{'seconds':>9}{'CPU s':>9}{'peak GB':>9}   ({arguments.side} px; goal 10 s, 1.2 GB)"
    )
    for name in arguments.pipelines or list_pipelines():
        seconds, cpu_seconds, peak = run_fresh(["--pipeline", name, "--height", str(arguments.side)])
        print(f"{name:<22}{seconds:>9.2f}{cpu_seconds:>9.2f}{peak / 1e9:>9.2f}", flush=True)
    if arguments.pipelines is None:
        seconds, cpu_seconds, peak = run_fresh(["--all", "--height", str(ALL_SIDE_PX), "--steps", "30"])
        print(f"{'--all, 512 px':<22}{seconds:>9.2f}{cpu_seconds:>9.2f}{peak / 1e9:>9.2f}   (goal 90 s)")
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
