"""Prints how good plans of recomputation are: five small networks on this CPU, against real runs and other sets.

    python scripts/benchmark_recomputation.py [--networks DiT,ResNet]

Nothing is asserted; the tests do that, with the functions here.
"""

from __future__ import annotations

import bisect
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch
from torch.profiler import ProfilerActivity, profile

import swinmr_profiling.command
from swinmr_profiling.profiler.measure.example_data import ExampleData
from swinmr_profiling.profiler.options.option_types import OneLineParser, parse_options
from swinmr_profiling.profiler.plan.chain_selection import Selection, peak_grain
from swinmr_profiling.profiler.plan.step_planner import StepPlanner, levels_of
from swinmr_profiling.profiler.prediction.trace.traced_step import copy_of
from swinmr_profiling.scripts.benchmarks.small_networks import built_plain, plain_config
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import (
    build_settings,
    build_state,
    training_step,
)

MIB = 2**20
BUDGETS, MANY_BUDGETS = 5, 50
# What only the CPU's kernels take and give back: convolutions unfold their input, BatchNorm makes the gradient of its
# input twice and lets the first go.
CPU_SCRATCH = (
    "aten::_slow_conv2d_forward",
    "aten::_slow_conv2d_backward",
    "aten::native_batch_norm_backward",
)
# Small enough for a CPU, and with a batch at which activations are most of the memory.
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "SwinMR": ({"net_type": "swinmr", "img_size": 48, "depths": [2, 2], "num_heads": [2, 2], "embed_dim": 24}, 4),
    "U-Net": ({"net_type": "unet_denoiser", "img_size": 48, "base_channels": 16, "channel_multipliers": [1, 2],
               "num_res_blocks": 1, "attention_resolutions": [24], "num_groups": 4, "head_channels": 16}, 8),
    "DiT": ({"net_type": "dit_denoiser", "img_size": 64, "patch_size": 4, "embed_dim": 32, "depth": 3,
             "num_heads": 2}, 16),
    "ViT": ({"net_type": "timm", "name": "vit_tiny_patch16_224", "img_size": 128, "num_classes": 4,
             "kwargs": {"depth": 3, "embed_dim": 48, "num_heads": 3}}, 32),
    "ResNet": ({"net_type": "timm", "name": "resnet10t", "img_size": 64, "num_classes": 4}, 32),
}  # fmt: skip
# With so few modules that a step of every set can be traced. Not the ResNet: where its 162 sets take minutes and not an
# hour, its images are so small that no set has a lower peak than none.
COUNTABLE: dict[str, tuple[dict[str, Any], int]] = {
    "SwinMR": ({**NETWORKS["SwinMR"][0], "img_size": 32, "depths": [2], "num_heads": [2]}, 4),
    "DiT": ({**NETWORKS["DiT"][0], "img_size": 32, "depth": 1}, 16),
    "ViT": ({**NETWORKS["ViT"][0], "kwargs": {"depth": 2, "embed_dim": 48, "num_heads": 3}}, 16),
}


def planner_of(model: dict[str, Any]) -> StepPlanner:
    """Plans for the CPU's own way to train a model section."""
    return StepPlanner(plain_config(model), as_on_cuda=False, build=built_plain)


@cache
def planner(name: str) -> StepPlanner:
    """Of one of NETWORKS."""
    return planner_of(NETWORKS[name][0])


@cache
def peaks(name: str) -> tuple[int, int]:
    """Live bytes of the least set, and without recomputation."""
    own, batch = planner(name), NETWORKS[name][1]
    return own.least(batch).peak_bytes, own.peak("none", batch)


@cache
def chosen(name: str, number: int) -> tuple[int, Selection]:
    """The number-th of five budgets, from the least peak there is to just below that of none, and its set."""
    low, high = peaks(name)
    budget = low + (high - 1 - low) * number // (BUDGETS - 1)
    found = planner(name).choose(NETWORKS[name][1], budget)
    assert found is not None
    return budget, found


def predicted_bytes(own: StepPlanner, modules: tuple[str, ...], batch: int) -> int:
    """The most alive in the traced steps, not rounded: a CPU's allocator rounds nothing."""
    trace = own.step(modules, batch).trace
    return int(trace.live_bytes()[trace.step_starts[0] :].max())


@contextmanager
def plain_convolutions() -> Iterator[None]:
    """Without oneDNN; `torch.backends.mkldnn.flags` sets TF32 too, and warns where no Intel GPU is."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def real_bytes(own: StepPlanner, modules: tuple[str, ...], batch: int) -> int:
    """Most bytes that PyTorch's CPU allocator had given out while a state was built and two steps ran.

    Without what CUDA does not take: oneDNN is off, whose convolutions copy arguments and results into layouts of their
    own (in one `convolution_backward` of 1 MiB each of input and output, 3 MiB), and what operators of CPU_SCRATCH take
    and give back themselves is left out.
    """
    config = own.in_way(modules)
    built, settings = own.build(config), build_settings(config, "cpu")
    with attention_kernels(config.system.attention), plain_convolutions():
        loss = copy_of(build_loss(config, for_prediction=True), None)
        batches = ExampleData(built, config, loss, torch.device("cpu")).micro_batches(batch)
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            state = build_state(config, copy_of(built.module, None).train(), loss, total_steps=2)
            for _ in range(2):
                training_step(state, settings, batches)
                gc.collect()
    return most_held(list(profiler.profiler.kineto_results.events()))


def most_held(events: list[Any]) -> int:
    """Bytes, from a profiler's events of one thread."""
    memory = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    times = [e.start_ns() for e in memory]
    sizes = [e.nbytes() for e in memory]
    for operator in events:
        if operator.name() in CPU_SCRATCH:
            inside = range(
                bisect.bisect_left(times, operator.start_ns()), bisect.bisect_right(times, operator.end_ns())
            )
            for number in inside:
                # The last allocation of that size before it.
                made = [n for n in inside if n < number and sizes[n] == -sizes[number] > 0]
                if made:
                    sizes[number] = sizes[made[-1]] = 0
    return max(itertools.accumulate(sizes))


@dataclass(frozen=True)
class Sweep:
    """Sets at falling budgets. distinct: how many. rises: where less memory had a higher peak, or cost less.
    as_cheap_with_less: sets that cost the same at 2 MiB (a thousandth of a small peak) below their own.
    """

    distinct: int
    rises: int
    as_cheap_with_less: int


def sweep(own: StepPlanner, batch: int, budgets: int = MANY_BUDGETS) -> Sweep:
    """From none's peak down to the least."""
    low, high = own.least(batch).peak_bytes, own.peak("none", batch)
    asked = [own.choose(batch, high - (high - low) * number // (budgets - 1)) for number in range(budgets)]
    found = [one for one in asked if one is not None]
    if len(found) < budgets:
        raise RuntimeError("a budget between the least peak and that of none has no set")
    rises = sum(
        after.peak_bytes > before.peak_bytes or after.cost < before.cost
        for before, after in itertools.pairwise(found)
    )
    distinct = {one.modules: one for one in found}.values()
    less = [own.choose(batch, one.peak_bytes - peak_grain(one.peak_bytes)) for one in distinct]
    cheap = sum(
        other is not None and other.cost <= one.cost for one, other in zip(distinct, less, strict=True)
    )
    return Sweep(len(distinct), rises, cheap)


def every_set(own: StepPlanner, batch: int) -> list[tuple[int, tuple[int, int], tuple[str, ...]]]:
    """(peak, cost, modules) of each set of modules of which none is inside another, all traced."""
    levels = levels_of(own.step("none", batch).spans)
    names = [name for level in levels for name in level]
    sets: list[tuple[str, ...]] = [()]
    for name in names:
        sets += [
            (*one, name)
            for one in sets
            if not any(name.startswith(f"{a}.") or a.startswith(f"{name}.") for a in one)
        ]
    return [(own.peak(one, batch), own.cost(one, batch), one) for one in sets]


def against_all(own: StepPlanner, batch: int, budgets: int = BUDGETS) -> tuple[int, float]:
    """How many sets there are, and the planner's multiply-adds over the cheapest set's at the worst of the budgets."""
    sets = every_set(own, batch)
    low, high = min(peak for peak, _, _ in sets), own.peak("none", batch)
    worst = 1.0
    for number in range(budgets):
        budget = low + (high - 1 - low) * number // (budgets - 1)
        found = own.choose(batch, budget)
        best = min(cost for peak, cost, _ in sets if peak <= budget)
        worst = max(worst, float("inf") if found is None else (found.macs + 1) / (best[0] + 1))
    return len(sets), worst


def real_runs(name: str) -> None:
    own, batch = planner(name), NETWORKS[name][1]
    for number in range(BUDGETS):
        budget, found = chosen(name, number)
        predicted, real = predicted_bytes(own, found.modules, batch), real_bytes(own, found.modules, batch)
        print(
            f"| {name} | {budget / MIB:.1f} | {len(found.modules)} | {predicted / MIB:.2f} | {real / MIB:.2f} "
            f"| {predicted / real - 1:+.3%} | {found.macs / 1e6:,.1f} |",
            flush=True,
        )


def against_named(name: str) -> None:
    own, batch = planner(name), NETWORKS[name][1]
    for way in own.named_ways()[1:]:
        peak, cost = own.peak(way, batch), own.cost(way, batch)
        found = own.choose(batch, peak)
        assert found is not None
        print(
            f"| {name} | {way} | {peak / MIB:.1f} | {cost[0] / 1e6:,.1f} | {found.macs / 1e6:,.1f} |",
            flush=True,
        )


def swept(name: str) -> None:
    found = sweep(planner(name), NETWORKS[name][1])
    print(f"| {name} | {found.distinct} | {found.rises} | {found.as_cheap_with_less} |", flush=True)


def counted(name: str) -> None:
    if name in COUNTABLE:
        model, batch = COUNTABLE[name]
        number, worst = against_all(planner_of(model), batch)
        print(f"| {name} | {number} | {worst - 1:+.2%} |", flush=True)


TABLES: dict[str, tuple[Callable[[str], None], str]] = {
    "real": (
        real_runs,
        "| network | budget MiB | modules | predicted MiB | real MiB | deviation | MMACs again |",
    ),
    "named": (
        against_named,
        "| network | setting | its peak MiB | its MMACs again | the set's at that peak |",
    ),
    "sweep": (swept, f"| network | sets at {MANY_BUDGETS} budgets | not monotone | as cheap with less |"),
    "all": (counted, "| network | sets there are | MACs over the cheapest of them |"),
}


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Prints the tables."""
    parsed = parse_options(
        OneLineParser(
            prog="benchmark_recomputation.py", description="Print how good plans of recomputation are."
        ),
        arguments,
        {
            "--networks": dict(default=",".join(NETWORKS), metavar="A,B"),
            "--tables": dict(default=",".join(TABLES), metavar="A,B"),
        },
    )
    torch.set_num_threads(1)
    for table in parsed.tables.split(","):
        make, head = TABLES[table]
        start = time.process_time()
        print(head)
        print("| " + " | ".join(["---"] + ["---:"] * (head.count("|") - 2)) + " |")
        for name in parsed.networks.split(","):
            make(name)
        print(f"({time.process_time() - start:.0f} s of CPU)\n", flush=True)
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
