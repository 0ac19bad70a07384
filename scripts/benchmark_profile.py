#!/usr/bin/env python3
"""What profiling itself costs, and whether it repeats itself; every figure is printed, none is asserted.

    python scripts/benchmark_profile.py                      # cost: start, build, count, write; the sweep's ratio
    python scripts/benchmark_profile.py --answer             # how long until the answer stands there?
    python scripts/benchmark_profile.py --repeat 10          # do the intervals of two runs in a row overlap?

Cost: the command's wall time less the timed forward passes and the cross-check, its goal 12 s on 2 cores; the
sweep's forward passes over one forward pass of every requested image, its goal 1.25 where one run is longer than
its time budget; the peak memory of the command's own process, its goal 600 MB. The answer: in multiples of what
`import torch, timm` takes right before and after it; each has a goal beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.profiler.options.option_types import OneLineParser, parse_options  # noqa: E402

PROFILE_MODEL = REPOSITORY / "scripts/profile_model.py"
POLL_S = 0.05
MIB = 2**20


def run_profile(config: str, options: list[str], output: Path) -> tuple[dict[str, Any], float, int]:
    """Profiles once; returns the profile, the wall seconds, and the command's peak resident bytes.

    Raises RuntimeError when the command fails.
    """
    command = [sys.executable, str(PROFILE_MODEL), "--config", config, "--output", str(output), *options]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
    )
    watched, peak_bytes = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            peak_bytes = max(peak_bytes, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(POLL_S)
    error = process.communicate()[1]
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {error}")
    return json.loads(output.read_text(encoding="utf-8")), seconds, peak_bytes


def forward_seconds(block: dict[str, Any]) -> float:
    """All forward passes of one measured size, warm-up included, s."""
    timing = block["timing"]
    return (sum(timing["samples_ms"]) + sum(timing["warmup_ms"])) / 1000


def measured_blocks(profile: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every measurement of the run once: the sizes, and the single image where 1 is not among them."""
    blocks = {size: block for size, block in profile["batch_profiling"].items() if "timing" in block}
    blocks.setdefault("1", profile["single_image"])
    return blocks


def print_cost(config: str, batch_sizes: str, folder: Path) -> None:
    """Runs once and prints where its time went."""
    profile, wall_s, peak_bytes = run_profile(config, ["--batch-sizes", batch_sizes], folder / "cost.json")
    blocks = measured_blocks(profile)
    forwards_s = sum(map(forward_seconds, blocks.values()))
    cross_check_s = sum(
        check["seconds"] or 0.0
        for check in profile["architecture"]["counters"]
        if not check["from_earlier_run"]
    )
    one_pass_s = sum(block["timing"]["median_ms"] for block in blocks.values()) / 1000
    cpu = profile["environment"]["cpu"]
    print(
        f"machine: {cpu['name']}, {cpu['threads']} threads",
        f"config: {config}, batch sizes {batch_sizes}, device {profile['config']['device']}",
        f"wall time                                 {wall_s:8.2f} s",
        f"  forward passes (timed and warm-up)      {forwards_s:8.2f} s",
        f"  cross-check by fvcore and thop          {cross_check_s:8.2f} s",
        f"  everything else (goal 12)               {wall_s - forwards_s - cross_check_s:8.2f} s",
        f"one forward pass of every requested image {one_pass_s:8.2f} s",
        f"  the sweep over that (goal 1.25 when one run exceeds its budget) {forwards_s / one_pass_s:8.3f}",
        f"peak resident memory of the command       {peak_bytes / MIB:8.1f} MiB (goal 600 MB)",
        sep="\n",
    )


# What is waited for, its goal in imports of torch and timm, the config, the options. The traces that the second leaves
# on disk are those that the third finds.
ANSWERS: tuple[tuple[str, float, str, list[str]], ...] = (
    ("parameters and MACs", 2.5, "train_config.json", ["--no-training"]),
    ("training batch, no traces on disk", 5, "train_config.json", []),
    ("training batch, traces on disk", 3, "train_config.json", []),
    ("levers of the large config, no traces", 20, "train_config_large.json", ["--gpu", "RTX 3090"]),
)
IMPORTS = "import torch, timm"


def seconds_to_answer(config: Path, options: list[str], cache: str) -> float:
    """Until the line of the answer is printed; the rest of the run is not waited for. Raises RuntimeError."""
    command = [sys.executable, str(PROFILE_MODEL), "--config", str(config), "--device", "cpu", *options]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--output", str(Path(folder) / "p.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "XDG_CACHE_HOME": cache},
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("ANSWER"):
                    return time.perf_counter() - started
            raise RuntimeError(f"{' '.join(command)} ended with {process.wait()} and without an answer")
        finally:
            process.terminate()
            process.communicate()


def seconds_to_import() -> float:
    """One process that imports what every profile needs."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.perf_counter() - started


def print_answers() -> None:
    """Seconds until each answer, and how many imports that is: of those right before and right after it.

    Other programs slow an import and an answer alike only while they run.
    """
    seconds_to_import()  # from the disk into the memory, which is not what is asked
    with tempfile.TemporaryDirectory() as cache:
        before = seconds_to_import()
        for what, goal, name, options in ANSWERS:
            folder = cache if "large" not in what else str(Path(cache) / "large")
            seconds = seconds_to_answer(REPOSITORY / "configs" / name, options, folder)
            after = seconds_to_import()
            one, before = (before + after) / 2, after
            print(
                f"{what:<38} {seconds:7.2f} s = {seconds / one:5.2f} imports of {one:.2f} s (goal {goal:g})",
                flush=True,
            )
    print(f'one import: python -c "{IMPORTS}"')


def overlap(first: list[float] | None, second: list[float] | None) -> bool | None:
    """Whether two intervals share a point; None where a series was too short for one."""
    if first is None or second is None:
        return None
    return first[0] <= second[1] and second[0] <= first[1]


def print_repeats(config: str, batch_sizes: str, options: list[str], tries: int, folder: Path) -> None:
    """Two profiles in a row, `tries` times: do their 95 % intervals of the median overlap for every size?"""
    agreed = 0
    for attempt in range(1, tries + 1):
        pair = [
            run_profile(
                config,
                ["--batch-sizes", batch_sizes, "--cross-check", "off", *options],
                folder / f"{attempt}{name}.json",
            )[0]
            for name in "ab"
        ]
        verdicts = {}
        for size in pair[0]["batch_profiling"]:
            intervals = [profile["batch_profiling"][size]["timing"]["ci95_median_ms"] for profile in pair]
            verdicts[size] = overlap(*intervals)
            words = {True: "overlap", False: "APART", None: "too few runs"}[verdicts[size]]
            shown = " and ".join("-" if i is None else f"[{i[0]:.2f}, {i[1]:.2f}]" for i in intervals)
            print(f"try {attempt}, batch {size}: {shown} ms: {words}", flush=True)
        agreed += all(verdict is True for verdict in verdicts.values())
    print(f"overlapping for every batch size in {agreed} of {tries} tries (goal 9 of 10)")


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the benchmark that the options name."""
    parsed = parse_options(
        OneLineParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--config": dict(default=str(REPOSITORY / "configs/train_config.json")),
            "--batch-sizes": dict(default="1,4,8"),
            "--repeat": dict(type=int, default=0, metavar="N", help="pairs of profiles to compare"),
            "--time-budget": dict(default="10", help="seconds per batch size of the compared profiles"),
            "--image-size": dict(help="of the compared profiles; a small one gives many runs"),
            "--answer": dict(action="store_true", help="time until each answer, in imports of torch"),
        },
    )
    if parsed.answer:
        print_answers()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if parsed.repeat:
            options = ["--time-budget", parsed.time_budget]
            options += ["--image-size", parsed.image_size] if parsed.image_size else []
            print_repeats(parsed.config, parsed.batch_sizes, options, parsed.repeat, Path(folder))
        else:
            print_cost(parsed.config, parsed.batch_sizes, Path(folder))
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
