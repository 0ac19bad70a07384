"""Intervals and warnings over several processes: by hand, against scipy, and by simulation of processes that differ."""

import statistics

import numpy as np
import pytest
import scipy.stats

from swinmr_profiling.profiler.measure.timing.process_statistics import (
    STUDENT_T_95,
    median_interval_of_processes,
    process_warnings,
    processes_differ,
    split_by_process,
    student_interval,
)
from swinmr_profiling.profiler.measure.timing.timing_statistics import TimingWarning, median_interval

SERIES = 3000


def simulated(runs, process_sd, run_sd, seed, processes=3):
    """Series of 100 ms: each process off by a normal effect, each run by normal noise around that."""
    rng = np.random.default_rng(seed)
    effects = 1 + process_sd * rng.standard_normal((processes, 1))
    return (100 * effects * (1 + run_sd * rng.standard_normal((processes, runs)))).tolist()


def coverage(runs, process_sd, run_sd, interval=median_interval_of_processes):
    """Share of simulated series whose interval holds 100 ms, the median of the next process' next run."""
    inside = 0
    for seed in range(SERIES):
        low, high = interval(simulated(runs, process_sd, run_sd, seed))
        inside += low <= 100 <= high
    return inside / SERIES


def alarms(runs, process_sd, run_sd):
    return sum(processes_differ(simulated(runs, process_sd, run_sd, seed)) for seed in range(SERIES)) / SERIES


def test_student_points_equal_scipy():
    for processes, point in STUDENT_T_95.items():
        assert point == pytest.approx(scipy.stats.t.ppf(0.975, processes - 1), abs=5e-4)


def test_the_interval_by_hand():
    # Medians 100, 110, 90: mean 100, deviation 10; 4.303 x 10 / sqrt(3) = 24.843. The pooled interval of nine
    # runs is [2nd, 8th] = [90, 110], inside.
    series = [[99.0, 100.0, 101.0], [110.0, 110.0, 110.0], [90.0, 90.0, 90.0]]
    assert median_interval([sample for one in series for sample in one]) == (90.0, 110.0)
    assert median_interval_of_processes(series) == pytest.approx((100 - 24.843, 100 + 24.843), abs=1e-3)


def test_where_processes_agree_the_pooled_interval_is_left():
    # All medians 100: Student's interval is [100, 100]; nine runs 90 90 90 100 100 100 110 110 110 give [90, 110].
    assert median_interval_of_processes([[90.0, 100.0, 110.0]] * 3) == (90.0, 110.0)


def test_the_hull_takes_each_end_from_the_wider_interval():
    # Medians 100, 100, 103: mean 101, deviation sqrt(3), so 101 ± 4.303 = [96.697, 105.303]. Twelve runs sorted:
    # 86 99 99 100 100 100 100 103 103 120 120 120; rank 3 of 12 covers 1 - 2 (1 + 12 + 66)/4096 = 96.1 %:
    # [3rd, 10th] = [99, 120].
    alike = [99.0, 100.0, 100.0, 120.0]
    got = median_interval_of_processes([alike, alike, [86.0, 103.0, 103.0, 120.0]])
    assert got == pytest.approx((96.697, 120.0), abs=1e-3)


def test_one_process_has_its_own_interval_alone():
    series = [9.0, 10.0, 10.0, 11.0, 12.0, 13.0]
    assert median_interval_of_processes([series]) == median_interval(series) == (9.0, 13.0)
    assert median_interval_of_processes([series[:5]]) is None


def test_three_runs_of_three_processes_are_enough():
    # Mean 200, deviation 10: 200 ± 24.843.
    assert median_interval_of_processes([[190.0], [200.0], [210.0]]) == pytest.approx(
        (175.157, 224.843), abs=1e-3
    )


def test_two_processes_say_little_and_no_time_is_negative():
    # Mean 110, deviation 14.142: 12.706 x 14.142 / sqrt(2) = 127.06, beyond zero.
    assert student_interval([100.0, 120.0]) == pytest.approx((0.0, 237.06), abs=1e-2)


def test_the_interval_holds_the_median_of_all_runs_however_uneven_the_processes():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        series = [
            (rng.lognormal(sigma=0.5, size=rng.integers(1, 9))).tolist() for _ in range(rng.integers(2, 4))
        ]
        low, high = median_interval_of_processes(series)
        assert low <= statistics.median(sample for one in series for sample in one) <= high


@pytest.mark.parametrize("runs", [1, 3, 17, 60])
def test_the_interval_covers_the_median_where_processes_differ(runs):
    assert coverage(runs, process_sd=0.07, run_sd=0.03) >= 0.93


def test_the_pooled_interval_alone_would_not():
    def pooled(series):
        return median_interval([sample for one in series for sample in one])

    # What is mended: three effects of 7 % leave the mean off by 4 %, and 51 runs' interval reaches about 2 %.
    assert coverage(17, process_sd=0.07, run_sd=0.03, interval=pooled) < 0.80


@pytest.mark.parametrize("runs", [1, 3, 17, 60])
def test_the_interval_covers_the_median_where_they_do_not(runs):
    # Student's interval alone covers 95 %; a single run has no other, so four standard errors of a share,
    # sqrt(0.95 0.05 / 3000) = 0.4 %, are allowed there.
    assert coverage(runs, process_sd=0.0, run_sd=0.03) >= (0.95 if runs > 1 else 0.934)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", [2, 3, 4, 17])
@pytest.mark.parametrize("run_sd", [0.01, 0.05, 0.20])
def test_processes_that_are_alike_are_almost_never_called_different(runs, run_sd):
    assert alarms(runs, process_sd=0.0, run_sd=run_sd) < 0.01


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", [3, 17])
def test_processes_far_apart_are_called_different(runs):
    # The range of three effects of 20 % is over 13 % in nine of ten triples, and over 16 % in 85 of a hundred.
    assert alarms(runs, process_sd=0.20, run_sd=0.02) > 0.75


@pytest.mark.parametrize(("last", "differ"), [(110.0, False), (111.0, True)])
def test_the_threshold_of_a_tenth_by_hand(last, differ):
    # No spread within: the limit is a tenth of the median of all runs, which is 100.
    assert processes_differ([[100.0] * 4, [100.0] * 4, [last] * 4]) is differ


@pytest.mark.parametrize(("last", "differ"), [(120.0, False), (122.0, True)])
def test_what_the_spread_within_explains_by_hand(last, differ):
    # Variances 4, 4 and 9, their mean 17/3; 6.33 x 1.2533 x sqrt(17/3 / 3) = 10.904. Sorted, the nine runs are
    # 98 98 100 100 102 102 and the last three: the median is 102, a tenth of it 10.2, the limit 21.1.
    alike = [98.0, 100.0, 102.0]
    assert processes_differ([alike, alike, [last - 3, last, last + 3]]) is differ


def test_two_runs_a_process_prove_nothing():
    assert processes_differ([[100.0] * 2, [100.0] * 2, [200.0] * 2]) is False
    assert processes_differ([[100.0] * 9]) is False


def test_faults_are_those_within_a_process_never_those_across_the_joints():
    steps = [[100.0 + 0.1 * (run % 5) for run in range(20)] for _ in range(3)]
    steps = [[sample + 7 * index for sample in one] for index, one in enumerate(steps)]
    pooled = [sample for one in steps for sample in one]
    # In a row the three levels are a drift of 14 %; each process by itself is quiet.
    assert TimingWarning.DRIFT in process_warnings([pooled])
    assert process_warnings(steps) == [TimingWarning.PROCESSES_DIFFER]


def test_a_fault_of_one_process_is_said():
    quiet = [100.0 + 0.1 * (run % 5) for run in range(20)]
    drifting = np.linspace(90, 110, 20).tolist()
    assert process_warnings([quiet, drifting, quiet]) == [TimingWarning.DRIFT]
    assert process_warnings([quiet, quiet, quiet]) == []


@pytest.mark.parametrize("runs", [4, 17, 60])
def test_few_quiet_triples_are_warned_of(runs):
    warned = sum(bool(process_warnings(simulated(runs, 0.0, 0.03, seed))) for seed in range(500))
    # Three series, each with fewer than two false alarms in a hundred.
    assert warned / 500 < 0.05


def test_samples_are_split_where_processes_begin():
    assert split_by_process([1.0, 2.0, 3.0, 4.0], [2, 1, 1]) == [[1.0, 2.0], [3.0], [4.0]]
    with pytest.raises(ValueError, match="4 samples, but 3 runs by process"):
        split_by_process([1.0, 2.0, 3.0, 4.0], [2, 1])
