"""Statistics of one batch size that several measuring processes timed, each with a series of its own.

Processes of one command differ from each other by 5 to 15 % on a CPU (memory layout, thread placement, what else
the machine does), more than the runs within one of them show. Pure functions on lists of milliseconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise

from swinmr_profiling.profiler.measure.timing.timing_statistics import (
    TimingWarning,
    median_interval,
    timing_warnings,
)

# Two-sided 95 % points of Student's t by number of processes (degrees of freedom: one less).
STUDENT_T_95 = {2: 12.706, 3: 4.303}
# Processes that differ by a tenth can no longer tell two networks apart that do: the same tenth as of noise.
PROCESSES_DIFFER_SHARE = 0.10
# What chance alone explains of the range of the processes' medians: the 99 % point of the studentised range of
# three at 6 degrees of freedom (6.33; 4.12 for many runs), times the standard error of a median, which is at most
# 1.2533 s / sqrt(n) (a normal's for many runs; less for few, and for the heavy tails that timings have). With fewer
# than three runs a process the within-process deviation s is too poorly known to call anything beyond it.
RANGE_99 = 6.33
MEDIAN_STANDARD_ERROR = 1.2533
MIN_RUNS_PER_PROCESS = 3


def split_by_process(samples: Sequence[float], runs_by_process: Sequence[int]) -> list[list[float]]:
    """The series of each process from all samples in the order they ran. Raises ValueError if runs are left."""
    if sum(runs_by_process) != len(samples):
        raise ValueError(f"{len(samples)} samples, but {sum(runs_by_process)} runs by process")
    return [list(samples[start:end]) for start, end in pairwise([0, *accumulate(runs_by_process)])]


def student_interval(medians: Sequence[float]) -> tuple[float, float]:
    """95 % interval around the mean of two or three processes' medians (Student 1908), not below zero.

    It holds the median of all runs: that lies between the processes' medians, none of which is further from
    their mean than (n - 1) / sqrt(n) deviations; the interval reaches 2.48 for three, 8.98 for two.
    """
    centre = statistics.fmean(medians)
    reach = STUDENT_T_95[len(medians)] * statistics.stdev(medians) / math.sqrt(len(medians))
    return max(centre - reach, 0.0), centre + reach


def median_interval_of_processes(series: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """95 % interval of the median latency: of the next process too, where more than one was measured.

    The hull of the order-statistic interval of all runs and of Student's interval over the processes' medians:
    the second is wider where processes differ, the first where three happened to agree. One process: its own
    interval, which says nothing of others; None with fewer than six runs.
    """
    pooled = median_interval([sample for one in series for sample in one])
    if len(series) == 1:
        return pooled
    between = student_interval([statistics.median(one) for one in series])
    if pooled is None:
        return between
    return min(pooled[0], between[0]), max(pooled[1], between[1])


def processes_differ(series: Sequence[Sequence[float]]) -> bool:
    """Whether the processes' medians lie further apart than a tenth and what chance within them explains."""
    if len(series) < 2 or min(map(len, series)) < MIN_RUNS_PER_PROCESS:
        return False
    medians = [statistics.median(one) for one in series]
    freedom = sum(len(one) - 1 for one in series)
    variance = sum((len(one) - 1) * statistics.variance(one) for one in series) / freedom
    # The mean of the processes' own squared errors, so that a process with few runs counts as it must.
    error = MEDIAN_STANDARD_ERROR * math.sqrt(variance * statistics.fmean(1 / len(one) for one in series))
    middle = statistics.median(sample for one in series for sample in one)
    return max(medians) - min(medians) > PROCESSES_DIFFER_SHARE * middle + RANGE_99 * error


def process_warnings(series: Sequence[Sequence[float]]) -> list[TimingWarning]:
    """What a reader must know: faults within any process, each judged by itself, and that processes differ."""
    found = {warning for one in series for warning in timing_warnings(one)}
    if processes_differ(series):
        found.add(TimingWarning.PROCESSES_DIFFER)
    return [warning for warning in TimingWarning if warning in found]
