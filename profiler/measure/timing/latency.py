"""How many times a forward pass is run, and what the runs took.

The clock and the forward pass are passed in, so that the rules are tested without a network or a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from swinmr_profiling.profiler.measure.timing.process_statistics import split_by_process
from swinmr_profiling.profiler.measure.timing.timing_statistics import half_width_share
from swinmr_profiling.profiler.record.blocks.batch import StopReason

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
# Three are the fewest whose spread says something about a fourth (two: an interval of nine deviations), and each
# costs a start of about 4 s.
PROCESSES = 3
# A size is short, and gets further processes, when a process' share holds four runs; for runs of up to a second,
# of which a share holds few, one is enough (with a warm-up run in each, the size may then take two budgets): the
# single runs of three processes say more of the next than six of one do.
SHORT_RUN_SHARE = 1 / 12
SHORT_SECOND_SHARE = 1 / 3
SHORT_SECOND_MS = 1000.0


@dataclass(frozen=True)
class LatencyPolicy:
    """How long to measure. A number of runs that the user gave is obeyed whatever it costs.

    processes: how many measure a size whose runs are short. share_of: of how many processes this is one, 1 for
    a policy of a whole size.
    """

    num_runs: int | None = None
    warmup: int | None = None
    time_budget_s: float = DEFAULT_TIME_BUDGET_S
    target_half_width: float = TARGET_HALF_WIDTH["cpu"]
    min_runs: int = DEFAULT_RUNS
    max_runs: int = MAX_RUNS
    processes: int = 1
    share_of: int = 1

    def share(self) -> LatencyPolicy:
        """What each of the processes may use: its part of the time and of the runs."""
        return replace(
            self,
            time_budget_s=self.time_budget_s / self.processes,
            min_runs=math.ceil(self.min_runs / self.processes),
            max_runs=self.max_runs // self.processes,
            processes=1,
            share_of=self.processes,
        )

    def is_short(self, times_ms: Sequence[float], expected_ms: float | None = None) -> bool:
        """Whether runs of these times leave room for further processes.

        By the fastest of them, or by what a smaller batch promised: where the machine holds a process up for
        seconds, others are needed most, and no machine makes a slow network fast.
        """
        times_ms = [*times_ms, *([] if expected_ms is None else [expected_ms])]
        if self.processes == 1 or not times_ms:
            return False
        budget_ms = self.time_budget_s * 1000
        limit_ms = max(budget_ms * SHORT_RUN_SHARE, min(budget_ms * SHORT_SECOND_SHARE, SHORT_SECOND_MS))
        return min(times_ms) <= limit_ms


@dataclass(frozen=True)
class LatencySamples:
    """Raw times of whole-batch forward passes, in the order they ran, and why there are no more.

    further_processes: how many more processes are to measure the same size, each its share.
    runs_by_process: timed runs of each process that measured; [] where one did.
    """

    samples_ms: list[float]
    warmup_ms: list[float]
    stop_reason: StopReason
    notes: list[str] = field(default_factory=list)
    further_processes: int = 0
    runs_by_process: list[int] = field(default_factory=list)

    @property
    def series(self) -> list[list[float]]:
        """The timed runs of each process."""
        return split_by_process(self.samples_ms, self.runs_by_process or [len(self.samples_ms)])


def is_steady(warmup_ms: list[float]) -> bool:
    """Whether the last warm-up runs agree, so that the network is warm."""
    last = warmup_ms[-STEADY_RUNS:]
    return len(last) == STEADY_RUNS and max(last) <= min(last) * (1 + STEADY_SHARE)


def warm_up(run_ms: Callable[[], float], policy: LatencyPolicy, expected_ms: float | None) -> list[float]:
    """Ten runs, and more until the network is warm, within a fifth of the budget; returns their milliseconds.

    The first size of a sweep (expected_ms None) is always warmed up once; a later size only when its expected
    time leaves room for it, or when its runs are short. Where these are, the fifth is that of a process' share.
    """
    times: list[float] = []
    if policy.warmup is not None:
        return [run_ms() for _ in range(policy.warmup)]
    next_ms = 0.0 if expected_ms is None or policy.is_short([], expected_ms) else expected_ms
    while len(times) < MAX_WARMUP_RUNS:
        limits = policy.share() if policy.is_short(times, expected_ms) else policy
        if sum(times) + next_ms > limits.time_budget_s * 1000 * WARMUP_BUDGET_SHARE:
            break
        if len(times) >= DEFAULT_WARMUP_RUNS and is_steady(times):
            break
        times.append(run_ms())
        next_ms = times[-1]
    return times


def late_warmup_runs(samples_ms: list[float]) -> int:
    """How many timed runs at the start were still warm-up: slower than all later ones, by half a median."""
    if len(samples_ms) < 2 * STEADY_RUNS:
        return 0
    typical = sorted(samples_ms)[len(samples_ms) // 2]
    found = 0
    # At most a quarter: what lasts longer is not a warm-up but a drift, which has a warning of its own.
    for index in range(len(samples_ms) // 4):
        rest = samples_ms[index + 1 :]
        if samples_ms[index] <= max(rest) or samples_ms[index] < typical * (1 + LATE_WARMUP_SHARE):
            break
        found = index + 1
    return found


def reason_to_stop(
    samples_ms: list[float], warmup_ms: list[float], policy: LatencyPolicy
) -> StopReason | None:
    """Why no further run is timed, or None while there should be one."""
    if policy.num_runs is not None:
        return "requested" if len(samples_ms) >= policy.num_runs else None
    budget_ms = policy.time_budget_s * 1000 - sum(warmup_ms)
    if policy.share_of > 1:
        # A cold first run may take most of a share: what it takes over its fifth is not taken from the figures.
        budget_ms = max(budget_ms, policy.time_budget_s * 1000 * (1 - WARMUP_BUDGET_SHARE))
    if sum(samples_ms) + samples_ms[-1] > budget_ms:
        return "time_budget"
    if len(samples_ms) >= policy.max_runs:
        return "max_runs"
    if len(samples_ms) >= policy.min_runs:
        half_width = half_width_share(samples_ms)
        if half_width is not None and half_width <= policy.target_half_width:
            return "precise"
    return None


def budget_note(runs: int, time_budget_s: float) -> str:
    """What is said where the time ended before the usual number of runs."""
    return (
        f"{runs} of {DEFAULT_RUNS} runs: the time budget of {time_budget_s:g} s ended "
        "(--time-budget, --num-runs)"
    )


def measure_latency(
    run_ms: Callable[[], float],
    policy: LatencyPolicy,
    *,
    expected_ms: float | None = None,
    on_warm: Callable[[], None] = lambda: None,
) -> LatencySamples:
    """Times forward passes until the median is known well enough or the time budget ends.

    run_ms: runs one forward pass and returns its milliseconds.
    expected_ms: what one run should take, from a smaller batch; None for the first size.
    on_warm is called between warm-up and timed runs.

    Without --num-runs: 50 runs, then more (at most 1000) while the 95 % interval of the median is wider than
    the target, all within the time budget, warm-up included; always at least one run. Of several processes the
    first uses its share, and where the runs are not short goes on alone to the whole.
    """
    warmup_ms = warm_up(run_ms, policy, expected_ms)
    on_warm()
    samples: list[float] = []
    limits = policy.share() if policy.processes > 1 else policy
    stop_reason = None
    while stop_reason is None:
        samples.append(run_ms())
        stop_reason = reason_to_stop(samples, warmup_ms, limits)
        if stop_reason is not None and limits is not policy:
            if policy.is_short(warmup_ms + samples, expected_ms):
                break
            limits = policy
            stop_reason = reason_to_stop(samples, warmup_ms, limits)
    notes = []
    if policy.warmup is None and policy.num_runs is None:
        late = late_warmup_runs(samples)
        if late:
            warmup_ms, samples = warmup_ms + samples[:late], samples[late:]
            notes.append(f"the first {late} timed runs were still warm-up and are counted as such")
    # Of a share the command says it, which knows the runs of all processes.
    if stop_reason == "time_budget" and limits.share_of == 1 and len(samples) < DEFAULT_RUNS:
        notes.append(budget_note(len(samples), policy.time_budget_s))
    if not warmup_ms and policy.warmup is None:
        notes.append("no warm-up of its own: one run is longer than its share of the time budget (--warmup)")
    elif policy.warmup is None and len(warmup_ms) < DEFAULT_WARMUP_RUNS and not is_steady(warmup_ms):
        notes.append(
            f"{len(warmup_ms)} of {DEFAULT_WARMUP_RUNS} warm-up runs: cut to the time budget (--warmup)"
        )
    return LatencySamples(
        samples, warmup_ms, stop_reason, notes, 0 if limits is policy else policy.processes - 1
    )
