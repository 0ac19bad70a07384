"""How many times a forward pass is run, and what the runs took.

The clock and the forward pass are passed in, so that the rules are tested without a network or a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from profiler.timing_statistics import half_width_share

# What users of this script know, and the reasons to stop before or go on after.
DEFAULT_WARMUP_RUNS = 10
MAX_WARMUP_RUNS = 200
DEFAULT_RUNS = 50
DEFAULT_TIME_BUDGET_S = 10.0
# Warm-up may use a fifth of a size's budget: the rest is for figures.
WARMUP_BUDGET_SHARE = 0.2
# Warm-up is over when this many runs in a row are within 5 % of their fastest.
STEADY_RUNS = 3
STEADY_SHARE = 0.05
# Raw samples are kept in the JSON: a cap keeps a 0.1 ms network from filling it with 100,000 of them.
MAX_RUNS = 1000
# The interval of the median that is precise enough: GPUs repeat themselves better than CPUs.
TARGET_HALF_WIDTH = {"cuda": 0.01, "cpu": 0.02}
# A timed run at the start that is slower than every later one by half the median was still warm-up.
LATE_WARMUP_SHARE = 0.5


@dataclass(frozen=True)
class LatencyPolicy:
    """How long to measure. A number of runs that the user gave is obeyed whatever it costs."""

    num_runs: int | None = None
    warmup: int | None = None
    time_budget_s: float = DEFAULT_TIME_BUDGET_S
    target_half_width: float = TARGET_HALF_WIDTH["cpu"]


@dataclass(frozen=True)
class LatencySamples:
    """Raw times of whole-batch forward passes, in the order they ran, and why there are no more."""

    samples_ms: list[float]
    warmup_ms: list[float]
    stop_reason: str
    notes: list[str] = field(default_factory=list)


def is_steady(warmup_ms: list[float]) -> bool:
    """Whether the last warm-up runs agree, so that the network is warm."""
    last = warmup_ms[-STEADY_RUNS:]
    return len(last) == STEADY_RUNS and max(last) <= min(last) * (1 + STEADY_SHARE)


def warm_up(
    run_ms: Callable[[], float], policy: LatencyPolicy, expected_ms: float | None, on_run: Callable[[], None]
) -> list[float]:
    """Ten runs, and more until the network is warm, within a fifth of the budget; returns their milliseconds.

    The first size of a sweep (expected_ms None) is always warmed up once; a later size only when its expected
    time leaves room for it.
    """
    times: list[float] = []
    if policy.warmup is not None:
        for _ in range(policy.warmup):
            times.append(run_ms())
            on_run()
        return times
    budget_ms = policy.time_budget_s * 1000 * WARMUP_BUDGET_SHARE
    next_ms = 0.0 if expected_ms is None else expected_ms
    while sum(times) + next_ms <= budget_ms and len(times) < MAX_WARMUP_RUNS:
        if len(times) >= DEFAULT_WARMUP_RUNS and is_steady(times):
            break
        times.append(run_ms())
        next_ms = times[-1]
        on_run()
    return times


def late_warmup_runs(samples_ms: list[float]) -> int:
    """How many timed runs at the start were still warm-up: slower than all later ones, by half a median."""
    if len(samples_ms) < 2 * STEADY_RUNS:
        return 0
    typical = sorted(samples_ms)[len(samples_ms) // 2]
    found = 0
    # At most a quarter: what lasts longer is no warm-up but a drift, which has a warning of its own.
    for index in range(len(samples_ms) // 4):
        rest = samples_ms[index + 1 :]
        if samples_ms[index] <= max(rest) or samples_ms[index] < typical * (1 + LATE_WARMUP_SHARE):
            break
        found = index + 1
    return found


def measure_latency(
    run_ms: Callable[[], float],
    policy: LatencyPolicy,
    *,
    expected_ms: float | None = None,
    on_warm: Callable[[], None] = lambda: None,
    on_run: Callable[[], None] = lambda: None,
) -> LatencySamples:
    """Times forward passes until the median is known well enough or the time budget ends.

    run_ms: runs one forward pass and returns its milliseconds.
    expected_ms: what one run should take, from a smaller batch; None for the first size.
    on_warm is called between warm-up and timed runs, on_run after every run of either.

    Without --num-runs: 50 runs, then more (at most 1000) while the 95 % interval of the median is wider than
    the target, all within the time budget, warm-up included; always at least one run.
    """
    warmup_ms = warm_up(run_ms, policy, expected_ms, on_run)
    on_warm()
    samples: list[float] = []
    budget_ms = policy.time_budget_s * 1000 - sum(warmup_ms)
    while True:
        samples.append(run_ms())
        on_run()
        if policy.num_runs is not None:
            if len(samples) >= policy.num_runs:
                stop_reason = "requested"
                break
            continue
        if sum(samples) + samples[-1] > budget_ms:
            stop_reason = "time_budget"
            break
        if len(samples) >= MAX_RUNS:
            stop_reason = "max_runs"
            break
        if len(samples) >= DEFAULT_RUNS:
            half_width = half_width_share(samples)
            if half_width is not None and half_width <= policy.target_half_width:
                stop_reason = "precise"
                break
    notes = []
    if policy.warmup is None and policy.num_runs is None:
        late = late_warmup_runs(samples)
        if late:
            warmup_ms, samples = warmup_ms + samples[:late], samples[late:]
            notes.append(f"the first {late} timed runs were still warm-up and are counted as such")
    if stop_reason == "time_budget" and len(samples) < DEFAULT_RUNS:
        notes.append(
            f"{len(samples)} of {DEFAULT_RUNS} runs: the time budget of {policy.time_budget_s:g} s ended "
            "(--time-budget, --num-runs)"
        )
    if not warmup_ms and policy.warmup is None:
        notes.append("no warm-up of its own: one run is longer than its share of the time budget (--warmup)")
    elif policy.warmup is None and len(warmup_ms) < DEFAULT_WARMUP_RUNS and not is_steady(warmup_ms):
        notes.append(
            f"{len(warmup_ms)} of {DEFAULT_WARMUP_RUNS} warm-up runs: cut to the time budget (--warmup)"
        )
    return LatencySamples(samples, warmup_ms, stop_reason, notes)
