"""Whether two latencies differ or are two looks at one: ranks of all runs, and the spread between processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from swinmr_profiling.profiler.measure.timing.process_statistics import split_by_process
from swinmr_profiling.profiler.record.blocks.batch import Timing

SIGNIFICANCE = 0.05
# Two-sided 95 % points of Student's t by degrees of freedom: processes of both sides, less one each.
STUDENT_T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
# Two processes that run one network on a CPU differ by 5 to 15 % (memory layout, thread placement, other work), and
# no number of runs within them shows it. With one process on each side nothing smaller can be told from that.
CPU_PROCESS_SHARE = 0.15


class Verdict(str, Enum):
    """What is known of a difference in latency."""

    SAME = "no significant difference"
    FASTER = "significantly faster"
    SLOWER = "significantly slower"
    ONE_PROCESS = "no significant difference (one CPU process each: up to 15 % is noise)"
    BETWEEN_PROCESSES = "no significant difference (no more than processes differ among themselves)"
    DISTURBED = "no verdict: the slower profile warns of a disturbed machine"
    TOO_FEW = "too few runs to tell from noise"
    NO_SAMPLES = "no raw samples: cannot be told from noise"

    @property
    def undecided(self) -> bool:
        return self in (Verdict.DISTURBED, Verdict.TOO_FEW, Verdict.NO_SAMPLES)


@dataclass(frozen=True)
class LatencyDifference:
    """ratio: median of the other over that of the first. p_value: of the Mann-Whitney test on all runs, or None."""

    ratio: float | None
    p_value: float | None
    verdict: Verdict


def compare_latency(
    first: Timing, other: Timing, *, on_cpu: bool, disturbed: tuple[bool, bool] = (False, False)
) -> LatencyDifference:
    """The difference of two measurements of the same batch size.

    It is significant where the ranks of the runs say so (Mann-Whitney, p < 0.05) and, on a CPU, the medians of the
    measuring processes do too (Student's t on their logarithms, 95 %): runs of one process are more alike than those
    of two, so that ranks alone would call every pair of processes different. GPUs repeat themselves from process to
    process.

    disturbed: whether each was measured on a machine that other work or saved power made slower. Where that is the
    slower of the two, the machine may be the reason.
    """
    ratio = other.median_ms / first.median_ms if first.median_ms and other.median_ms is not None else None
    if not first.samples_ms or not other.samples_ms or ratio is None or ratio <= 0:
        return LatencyDifference(ratio, None, Verdict.NO_SAMPLES)
    if smallest_p(len(first.samples_ms), len(other.samples_ms)) >= SIGNIFICANCE:
        return LatencyDifference(ratio, None, Verdict.TOO_FEW)
    p_value = rank_test(first.samples_ms, other.samples_ms)
    verdict = Verdict.FASTER if ratio < 1 else Verdict.SLOWER
    if p_value >= SIGNIFICANCE or ratio == 1:
        verdict = Verdict.SAME
    elif on_cpu and (within := _within_processes(process_medians(first), process_medians(other))) is not None:
        verdict = within
    elif disturbed[1] if ratio > 1 else disturbed[0]:
        verdict = Verdict.DISTURBED
    return LatencyDifference(ratio, p_value, verdict)


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of Mann and Whitney (1947): timings have long tails and several modes, so ranks are compared.

    Exact where a series has at most 8 values and no two are equal, else by the normal approximation.
    """
    from scipy.stats import mannwhitneyu  # here: most commands compare nothing, and it takes half a second

    return float(mannwhitneyu(first, second, alternative="two-sided").pvalue)


def smallest_p(first: int, second: int) -> float:
    """The smallest p-value that series of these lengths can give: that of two that do not overlap at all."""
    return min(1.0, 2 / math.comb(first + second, first))


def process_medians(timing: Timing) -> list[float]:
    """Median of each measuring process, ms; one where the profile does not tell them apart."""
    samples_ms = timing.samples_ms
    try:
        series = split_by_process(samples_ms, timing.runs_by_process or [len(samples_ms)])
    except ValueError:
        series = [samples_ms]
    return [statistics.median(one) for one in series if one]


def _within_processes(first: Sequence[float], other: Sequence[float]) -> Verdict | None:
    """Why a difference is none beyond that of processes among themselves, or None where it is."""
    if min(*first, *other) <= 0:
        return Verdict.NO_SAMPLES
    logs = [[math.log(median) for median in medians] for medians in (first, other)]
    distance = abs(statistics.fmean(logs[1]) - statistics.fmean(logs[0]))
    freedom = len(first) + len(other) - 2
    if freedom == 0:
        return Verdict.ONE_PROCESS if distance < math.log1p(CPU_PROCESS_SHARE) else None
    squares = sum((value - statistics.fmean(side)) ** 2 for side in logs for value in side)
    error = math.sqrt(squares / freedom * (1 / len(first) + 1 / len(other)))
    limit = STUDENT_T_95[min(freedom, max(STUDENT_T_95))] * error
    return Verdict.BETWEEN_PROCESSES if distance <= limit else None
