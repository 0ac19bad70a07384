"""The rules of measuring, with runs whose milliseconds are scripted: nothing here waits for a clock."""

import itertools

import pytest
import scipy.stats

from swinmr_profiling.profiler.measure.timing.latency import (
    PROCESSES,
    LatencyPolicy,
    is_steady,
    late_warmup_runs,
    measure_latency,
)


class Script:
    """A forward pass that takes the scripted milliseconds, the last of them for ever."""

    def __init__(self, *times_ms):
        self.times_ms = times_ms
        self.runs = 0

    def __call__(self):
        elapsed = self.times_ms[min(self.runs, len(self.times_ms) - 1)]
        self.runs += 1
        return elapsed


def noisy(low, high):
    """Runs that alternate, so that the interval of the median stays as wide as low and high are apart."""
    return Script(*itertools.islice(itertools.cycle([low, high]), 5000))


@pytest.mark.parametrize(("num_runs", "warmup"), [(1, 0), (1, 1), (7, 3), (200, 30), (3, 0)])
@pytest.mark.parametrize("run_ms", [0.5, 60_000.0])
def test_numbers_the_user_gave_are_obeyed_whatever_they_cost(num_runs, warmup, run_ms):
    script = Script(run_ms)
    got = measure_latency(script, LatencyPolicy(num_runs, warmup, time_budget_s=1))
    assert (len(got.warmup_ms), len(got.samples_ms)) == (warmup, num_runs)
    assert script.runs == num_runs + warmup
    assert got.stop_reason == "requested"
    assert got.notes == []


def test_a_requested_number_of_runs_is_not_trimmed_for_late_warmup():
    script = Script(1, 1, 90, 1)
    got = measure_latency(script, LatencyPolicy(num_runs=20, warmup=2))
    assert got.samples_ms == [90] + [1] * 19


def test_the_default_is_ten_warmups_and_fifty_runs_when_they_agree():
    got = measure_latency(Script(10.0), LatencyPolicy(time_budget_s=10))
    assert (len(got.warmup_ms), len(got.samples_ms), got.stop_reason) == (10, 50, "precise")
    assert got.notes == []


@pytest.mark.parametrize(
    ("low", "high", "target", "runs", "reason"),
    [
        # Half the interval over the median: 0.5 / 100.5 = 0.5 %.
        (100.0, 101.0, 0.01, 50, "precise"),
        # 1.5 / 101.5 = 1.48 %: enough for 2 %, not for 1 %.
        (100.0, 103.0, 0.02, 50, "precise"),
        (100.0, 103.0, 0.01, 1000, "max_runs"),
    ],
)
def test_runs_go_on_until_the_median_is_known_well_enough(low, high, target, runs, reason):
    policy = LatencyPolicy(warmup=0, time_budget_s=1000, target_half_width=target)
    got = measure_latency(noisy(low, high), policy)
    assert (len(got.samples_ms), got.stop_reason) == (runs, reason)


def test_runs_end_as_soon_as_more_of_them_have_made_the_median_precise():
    # 25 pairs 10 apart, then all alike: the interval closes when its ranks fall among the equal ones.
    script = Script(*[95.0, 105.0] * 25, 100.0)
    got = measure_latency(script, LatencyPolicy(warmup=0, time_budget_s=1000, target_half_width=0.02))
    # n runs hold 25 times 95, n - 50 times 100 and 25 times 105: [k-th smallest, k-th largest] is [100, 100] from
    # k = 26, and k is the 2.5 % point of a binomial(n, 1/2).
    expected = next(n for n in range(50, 200) if scipy.stats.binom.ppf(0.025, n, 0.5) >= 26)
    assert (len(got.samples_ms), got.stop_reason) == (expected, "precise")


@pytest.mark.parametrize(
    ("run_ms", "budget_s", "warmups", "runs"),
    [
        # 2 of 10 s warm up: runs of 300 ms fit 6 times (a seventh would end at 2.1 s); 8.2 s are left for 27.
        (300.0, 10, 6, 27),
        # One run is a fifth: one warm-up, and four in what is left.
        (2000.0, 10, 1, 4),
        # Longer than the budget: still one of each, and no more.
        (11_000.0, 10, 1, 1),
        (3_600_000.0, 10, 1, 1),
    ],
)
def test_the_budget_cuts_warmup_and_runs(run_ms, budget_s, warmups, runs):
    got = measure_latency(Script(run_ms), LatencyPolicy(time_budget_s=budget_s))
    assert (len(got.warmup_ms), len(got.samples_ms), got.stop_reason) == (warmups, runs, "time_budget")
    assert (
        f"{runs} of 50 runs: the time budget of {budget_s} s ended (--time-budget, --num-runs)" in got.notes
    )


@pytest.mark.parametrize("budget_s", [0.0, 1e-9])
def test_the_smallest_size_is_warmed_and_run_once_even_without_a_budget(budget_s):
    got = measure_latency(Script(5.0), LatencyPolicy(time_budget_s=budget_s), expected_ms=None)
    assert (got.warmup_ms, got.samples_ms) == ([5.0], [5.0])


def test_a_larger_size_is_not_warmed_where_one_run_takes_more_than_its_share():
    # A fifth of 10 s is 2 s.
    assert len(measure_latency(Script(2001.0), LatencyPolicy(), expected_ms=2001.0).warmup_ms) == 0
    assert len(measure_latency(Script(2000.0), LatencyPolicy(), expected_ms=2000.0).warmup_ms) == 1
    cold = measure_latency(Script(9000.0), LatencyPolicy(), expected_ms=9000.0)
    assert cold.samples_ms == [9000.0]
    assert cold.notes == [
        "1 of 50 runs: the time budget of 10 s ended (--time-budget, --num-runs)",
        "no warm-up of its own: one run is longer than its share of the time budget (--warmup)",
    ]


def test_a_requested_warmup_is_run_where_the_expected_time_would_forbid_it():
    got = measure_latency(Script(9000.0), LatencyPolicy(warmup=2), expected_ms=9000.0)
    assert len(got.warmup_ms) == 2


def test_a_cut_warmup_is_said_only_where_it_had_not_settled():
    settled = measure_latency(Script(300.0), LatencyPolicy())
    assert len(settled.warmup_ms) == 6
    assert not any("warm-up" in note for note in settled.notes)
    restless = measure_latency(Script(300.0, 400.0, 500.0, 380.0, 300.0), LatencyPolicy())
    # 300 + 400 + 500 + 380 = 1580, and 380 more would be 1960: 300 + 400 + 500 + 380 + 300 = 1880 ms.
    assert restless.warmup_ms == [300.0, 400.0, 500.0, 380.0, 300.0]
    assert "5 of 10 warm-up runs: cut to the time budget (--warmup)" in restless.notes


def test_warmup_goes_on_until_it_is_over():
    # Twenty runs that get faster by 10 % of the last, then steady: over once three in a row are within 5 %.
    script = Script(*[100.0 - 4 * run for run in range(20)], 20.0)
    got = measure_latency(script, LatencyPolicy())
    # The last of the twenty takes 24; three equal ones follow.
    assert len(got.warmup_ms) == 23
    assert set(got.samples_ms) == {20.0}


def test_warmup_that_never_settles_ends_at_two_hundred_runs():
    got = measure_latency(noisy(1.0, 2.0), LatencyPolicy())
    assert len(got.warmup_ms) == 200


@pytest.mark.parametrize(
    ("times", "steady"),
    [([], False), ([1, 1], False), ([9, 1, 1, 1], True), ([1, 1, 1.05], True), ([1, 1, 1.06], False)],
)
def test_steady_is_three_in_a_row_within_five_percent(times, steady):
    assert is_steady(times) is steady


def test_warmup_found_late_is_moved_where_it_belongs():
    # Ten quick runs (a GPU in its cold state may do so), then two slow ones, then steady.
    script = Script(*[10.0] * 10, 40.0, 30.0, 10.0)
    got = measure_latency(script, LatencyPolicy())
    assert got.warmup_ms == [10.0] * 10 + [40.0, 30.0]
    assert set(got.samples_ms) == {10.0}
    assert got.notes == ["the first 2 timed runs were still warm-up and are counted as such"]


@pytest.mark.parametrize(
    ("samples", "late"),
    [
        ([30, 20, 10, 10, 10, 10, 10, 10], 2),
        ([30, 10, 10, 10, 10, 10], 1),
        # Slower, but by less than half of the typical run.
        ([14, 10, 10, 10, 10, 10], 0),
        ([15, 10, 10, 10, 10, 10], 1),
        # As slow a run later on: interference, not warm-up.
        ([30, 10, 10, 30, 10, 10], 0),
        # More than a quarter: a drift, which is said by its own name.
        ([50, 40, 30, 10, 10, 10, 10, 10], 2),
        # Too few runs to tell.
        ([30, 10, 10, 10, 10], 0),
        ([], 0),
    ],
)
def test_late_warmup_is_what_is_slower_than_all_that_follows(samples, late):
    assert late_warmup_runs(samples) == late


def test_the_callbacks_come_once_per_run_and_once_between():
    events = []

    def run():
        events.append("run")
        return 1.0

    measure_latency(run, LatencyPolicy(num_runs=3, warmup=2), on_warm=lambda: events.append("warm"))
    assert events == ["run", "run", "warm", "run", "run", "run"]


def test_an_error_in_a_run_is_the_callers():
    def fail():
        raise RuntimeError("shape")

    with pytest.raises(RuntimeError, match="shape"):
        measure_latency(fail, LatencyPolicy())


def in_processes(budget_s=10.0, **options):
    return LatencyPolicy(time_budget_s=budget_s, processes=PROCESSES, **options)


@pytest.mark.parametrize(
    ("budget_s", "run_ms", "short"),
    [
        # Four runs in a third of 24 s: 2 s. That is over a second, so nothing else makes it short.
        (24, 2000.0, True),
        (24, 2001.0, False),
        # A second, which is more than 10 s / 12 and less than 10 s / 3.
        (10, 1000.0, True),
        (10, 1001.0, False),
        # A third of the budget.
        (1.5, 500.0, True),
        (1.5, 501.0, False),
    ],
)
def test_short_runs(budget_s, run_ms, short):
    assert in_processes(budget_s).is_short([run_ms]) is short
    assert measure_latency(Script(run_ms), in_processes(budget_s)).further_processes == (2 if short else 0)
    assert not LatencyPolicy(time_budget_s=budget_s).is_short([run_ms])


@pytest.mark.parametrize("expected_ms", [None, 2300.0])
@pytest.mark.parametrize(
    "times_ms", [[2300.0], [9000.0], [1100.0], [5000.0, 1200.0], [1100.0, 2000.0, 1300.0, 1800.0], [30_000.0]]
)
def test_a_slow_network_is_measured_as_if_there_were_one_process(times_ms, expected_ms):
    several, one = Script(*times_ms), Script(*times_ms)
    got = measure_latency(several, in_processes(), expected_ms=expected_ms)
    assert got == measure_latency(one, LatencyPolicy(), expected_ms=expected_ms)
    assert (got.further_processes, several.runs) == (0, one.runs)


def test_the_first_process_stops_at_its_share_of_the_time():
    # A third of 2 s is 667 ms, a fifth of it 133 ms of warm-up: one run of 100; 567 ms are left for five.
    got = measure_latency(Script(100.0), in_processes(2))
    assert (len(got.warmup_ms), len(got.samples_ms)) == (1, 5)
    assert (got.stop_reason, got.further_processes) == ("time_budget", 2)
    # The command knows all runs and says that they are few.
    assert not any("of 50 runs" in note for note in got.notes)


def test_a_cold_first_run_takes_nothing_from_the_share_of_the_figures():
    # The share's 667 ms less 600 of warm-up would leave one run of 130; four fifths of it, 533 ms, leave four.
    got = measure_latency(Script(600.0, 130.0), in_processes(2))
    assert (got.warmup_ms, got.samples_ms) == ([600.0], [130.0] * 4)


def test_a_short_size_is_warmed_up_even_where_one_run_is_over_a_fifth_of_its_share():
    got = measure_latency(Script(450.0), in_processes(2), expected_ms=450.0)
    assert (got.warmup_ms, got.samples_ms, got.further_processes) == ([450.0], [450.0], 2)


@pytest.mark.parametrize(
    ("script", "runs", "reason"),
    [
        # A third of 50 runs, rounded up, and of 1000.
        (Script(10.0), 17, "precise"),
        (noisy(1.0, 1.5), 333, "max_runs"),
    ],
)
def test_a_share_of_the_runs_too(script, runs, reason):
    got = measure_latency(script, in_processes(100, warmup=0))
    assert (len(got.samples_ms), got.stop_reason, got.further_processes) == (runs, reason, 2)


def test_a_further_process_uses_its_share_and_asks_for_no_other():
    share = in_processes(2).share()
    got = measure_latency(Script(100.0), share)
    assert (len(got.warmup_ms), len(got.samples_ms), got.further_processes) == (1, 5, 0)
    assert not any("of 50 runs" in note for note in got.notes)


def test_whether_a_size_is_short_is_decided_once():
    # 700 ms are over a third of 2 s: slow. What follows is fast, and the process goes on alone to the whole 2 s.
    got = measure_latency(Script(700.0, 100.0), in_processes(2, warmup=0))
    assert (got.samples_ms, got.further_processes) == ([700.0] + [100.0] * 13, 0)


@pytest.mark.parametrize(
    ("times_ms", "expected_ms"),
    [
        # One run of the warm-up shows how fast it is.
        ([400.0, 9000.0], None),
        # A smaller batch has shown it.
        ([9000.0], 400.0),
    ],
)
def test_a_process_that_the_machine_holds_up_is_not_left_alone(times_ms, expected_ms):
    got = measure_latency(Script(*times_ms), in_processes(2), expected_ms=expected_ms)
    assert (got.samples_ms, got.further_processes) == ([9000.0], 2)
