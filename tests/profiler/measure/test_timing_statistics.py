"""Statistics against numpy and scipy, and the warnings of series whose fault is known."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from swinmr_profiling.profiler.measure.timing.timing_statistics import (
    TimingWarning,
    half_width_share,
    interquartile_range,
    interval_rank,
    median_interval,
    quantile,
    rank_difference,
    spread_without_drift,
    summarise,
    timing_warnings,
)
from swinmr_profiling.profiler.record.limits import LEAST_RUNS, least_runs

NOISY, DRIFT = TimingWarning.NOISY, TimingWarning.DRIFT
TWO_MODES, OUTLIERS = TimingWarning.TWO_MODES, TimingWarning.OUTLIERS
SEEDS = 500


def skewed(count, seed=0):
    """A realistic series: a floor of 80 ms and a heavy tail of delays."""
    return (80 + 10 * np.random.default_rng(seed).lognormal(sigma=0.8, size=count)).tolist()


@pytest.mark.parametrize("count", [2, 5, 6, 7, 50, 101, 1000])
def test_every_figure_equals_numpy_and_scipy(count):
    samples = skewed(count, seed=count)
    got = summarise(samples)
    assert got.num_runs == count
    assert got.mean_ms == pytest.approx(np.mean(samples), rel=1e-12)
    assert got.std_ms == pytest.approx(np.std(samples, ddof=1), rel=1e-12)
    assert (got.min_ms, got.max_ms) == (min(samples), max(samples))
    assert got.median_ms == pytest.approx(np.median(samples), rel=1e-12)
    for name, percentile, least in (("p90_ms", 90, 10), ("p95_ms", 95, 20), ("p99_ms", 99, 100)):
        expected = pytest.approx(np.percentile(samples, percentile), rel=1e-12) if count >= least else None
        assert getattr(got, name) == expected
    assert got.iqr_ms == (pytest.approx(scipy.stats.iqr(samples), rel=1e-12) if count >= 4 else None)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.25, 0.5, 0.75, 0.999, 1.0])
def test_quantile_equals_numpy(probability):
    ordered = sorted(skewed(37))
    assert quantile(ordered, probability) == pytest.approx(np.quantile(ordered, probability), rel=1e-12)


def test_the_interval_of_the_median_equals_scipy_for_every_number_of_runs():
    for count in range(1, 301):
        samples = skewed(count, seed=count)
        exact = scipy.stats.quantile_test(samples, q=0, p=0.5).confidence_interval(0.95)
        if count < 6:
            # 1 - 2 / 2^5 = 93.75 %: not even [min, max] reaches 95 %.
            assert np.isnan(exact.low)
            assert median_interval(samples) is None
        else:
            assert median_interval(samples) == (exact.low, exact.high)


def test_interval_ranks_by_hand():
    # n = 6: [min, max] covers 1 - 2/64 = 96.9 %; [2nd, 5th] covers 1 - 2 (1 + 6)/64 = 78 %.
    assert interval_rank(6) == 1
    # n = 9: rank 2 covers 1 - 2 (1 + 9)/512 = 96.1 %; rank 3 covers 1 - 2 (1 + 9 + 36)/512 = 82 %.
    assert interval_rank(9) == 2
    # The table in every textbook of order statistics: n = 50, ranks 18 and 33.
    assert interval_rank(50) == 18
    assert [interval_rank(count) for count in range(6)] == [None] * 6


def test_the_interval_covers_the_median_of_the_distribution_as_often_as_it_says():
    # 95 % of 400 series, give or take 4 standard errors of a proportion: sqrt(0.95 0.05 / 400) = 1.1 %.
    inside = 0
    for seed in range(400):
        low, high = median_interval(skewed(41, seed))
        inside += low <= 90.0 <= high  # exp(0) = 1 is the median of the tail, 80 + 10 that of the series
    assert 0.95 - 0.044 <= inside / 400 <= 1


def test_one_run_has_no_deviation_and_no_interval():
    got = summarise([7.0])
    assert (got.std_ms, got.ci95_median_ms, got.iqr_ms) == (None, None, None)
    assert (got.p90_ms, got.p95_ms, got.p99_ms) == (None, None, None)
    assert (got.mean_ms, got.median_ms, got.min_ms, got.max_ms) == (7.0,) * 4


@pytest.mark.parametrize(
    ("name", "least"), [("std_ms", 2), ("iqr_ms", 4), ("p90_ms", 10), ("p95_ms", 20), ("p99_ms", 100)]
)
def test_a_figure_is_given_from_as_many_runs_as_it_needs_and_not_of_one_less(name, least):
    """One run in ten lies beyond p90, one in twenty beyond p95, one in a hundred beyond p99, one in four a quartile."""
    assert getattr(summarise(skewed(least - 1)), name) is None
    assert getattr(summarise(skewed(least)), name) > 0
    assert LEAST_RUNS[name] == least


@pytest.mark.parametrize(("percentile", "runs"), [(1, 100), (5, 20), (25, 4), (50, 2), (75, 4), (98, 50)])
def test_a_low_percentile_needs_as_many_as_its_mirror_image(percentile, runs):
    assert least_runs(percentile) == runs


@pytest.mark.parametrize(
    ("samples", "std", "interval"),
    [
        ([1.0, 3.0], 2**0.5, None),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 2.5**0.5, None),
        # Squares of the distances from 3.5: 2 (6.25 + 2.25 + 0.25) = 17.5, over 5.
        ([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 3.5**0.5, (1.0, 6.0)),
    ],
)
def test_deviation_from_two_runs_and_interval_from_six(samples, std, interval):
    got = summarise(samples)
    assert got.std_ms == pytest.approx(std)
    assert got.ci95_median_ms == interval


def test_half_width_is_relative_to_the_median():
    # Six runs: the interval is [9, 13], half of it 2; the median is 10.5.
    assert half_width_share([9.0, 10.0, 10.0, 11.0, 12.0, 13.0]) == pytest.approx(2 / 10.5)
    assert half_width_share([9.0, 10.0]) is None
    assert half_width_share([]) is None
    assert half_width_share([0.0] * 10) is None


def test_no_sample_is_refused():
    with pytest.raises(ValueError, match="no samples"):
        summarise([])


def test_the_samples_are_left_in_their_order():
    samples = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0]
    summarise(samples)
    timing_warnings(samples)
    assert samples == [3.0, 1.0, 2.0, 5.0, 4.0, 6.0]


def test_a_constant_series_has_no_spread_and_no_warning():
    got = summarise([4.0] * 60)
    assert dataclasses.astuple(got) == (60, 4.0, 0.0, 4.0, 4.0, 4.0, 4.0, 4.0, None, 0.0, (4.0, 4.0))
    assert timing_warnings([4.0] * 60) == []


def test_nothing_is_said_of_nothing():
    assert timing_warnings([]) == []
    assert timing_warnings([5.0]) == []
    # A clock that did not move: shares of the median mean nothing.
    assert timing_warnings([0.0] * 20) == []


def test_rank_difference_equals_scipy():
    for seed in range(20):
        first, last = skewed(13, seed), skewed(17, seed + 100)
        above = scipy.stats.mannwhitneyu(last, first).statistic
        z = (above - 13 * 17 / 2) / np.sqrt(13 * 17 * (13 + 17 + 1) / 12)
        assert rank_difference(first, last) == pytest.approx(z)


def test_rank_difference_counts_a_tie_as_half():
    assert rank_difference([1.0, 2.0], [1.0, 2.0]) == 0.0


def normal(count, sigma):
    return lambda rng: 100 * (1 + sigma * rng.standard_normal(count))


def heavy_tailed(count, share):
    """A floor and a lognormal tail of that share of it: what a shared machine does to a steady program."""
    return lambda rng: 100 * (1 + share * rng.lognormal(sigma=0.7, size=count))


def trend(count, shape):
    return lambda rng: 100 * (1 + shape(np.arange(count) / (count - 1)) + 0.01 * rng.standard_normal(count))


def ramp(rise):
    return lambda t: rise * t


def step(rise, at=0.5):
    return lambda t: rise * (t >= at)


def modes(count, distance, pattern):
    """Two speeds, 1 % noise around each; pattern says which runs are slow."""
    return lambda rng: 100 * (1 + distance * pattern(rng, count) + 0.01 * rng.standard_normal(count))


def every(period, phase=0):
    return lambda rng, count: np.arange(count) % period == period - 1 - phase


def by_chance(rng, count):
    return rng.random(count) < 0.5


def verdicts(make, seeds=SEEDS):
    """The warnings of that many seeded series, as sets."""
    return [frozenset(timing_warnings(make(np.random.default_rng(seed)).tolist())) for seed in range(seeds)]


def share_of(found, *expected):
    return sum(verdict == frozenset(expected) for verdict in found) / len(found)


@pytest.mark.parametrize("count", [6, 10, 15, 17, 18, 20, 24, 50, 200])
@pytest.mark.parametrize("sigma", [0.01, 0.05])
def test_fewer_than_two_in_a_hundred_quiet_series_are_warned_of(count, sigma):
    assert share_of(verdicts(normal(count, sigma))) > 0.98


@pytest.mark.parametrize("count", [15, 50, 200])
def test_a_heavy_tail_of_two_percent_is_no_fault(count):
    assert share_of(verdicts(heavy_tailed(count, 0.02))) > 0.98


@pytest.mark.parametrize(("count", "least"), [(15, 0.90), (50, 0.97), (200, 0.97)])
def test_a_spread_of_a_fifth_is_noisy_and_nothing_else(count, least):
    found = verdicts(normal(count, 0.20))
    assert share_of(found, NOISY) > least
    # Whatever else is said of pure noise is said of fewer than two series in a hundred.
    assert sum(bool(verdict - {NOISY}) for verdict in found) / SEEDS < 0.02


FAULTS = {
    "ramp of 10 %, 50 runs": (trend(50, ramp(0.10)), DRIFT),
    "ramp of 20 %, 18 runs": (trend(18, ramp(0.20)), DRIFT),
    "ramp downwards": (trend(50, ramp(-0.15)), DRIFT),
    "ramp that doubles the time": (trend(200, ramp(1.0)), DRIFT),
    "step of 10 % in the middle": (trend(50, step(0.10)), DRIFT),
    "step of 50 % in the middle": (trend(50, step(0.50)), DRIFT),
    "step of 30 % inside the first third": (trend(60, step(0.30, at=0.25)), DRIFT),
    "step of 30 % inside the last third": (trend(60, step(0.30, at=0.75)), DRIFT),
    "step downwards: a clock that rises": (trend(200, step(-0.20)), DRIFT),
    "alternating, 10 % apart": (modes(50, 0.10, every(2)), TWO_MODES),
    "alternating, 10 % apart, many runs": (modes(200, 0.10, every(2)), TWO_MODES),
    "alternating, twice as slow": (modes(20, 1.0, every(2)), TWO_MODES),
    "every fourth run": (modes(50, 0.20, every(4)), TWO_MODES),
    "three of four runs": (modes(50, -0.20, every(4)), TWO_MODES),
    "modes by chance": (modes(50, 0.20, by_chance), TWO_MODES),
    "modes by chance, many runs": (modes(200, 0.20, by_chance), TWO_MODES),
    "every tenth run twice as slow": (modes(50, 1.0, every(10)), OUTLIERS),
    "every twentieth run 20 % slower": (modes(200, 0.20, every(20)), OUTLIERS),
    "two of twenty runs": (modes(20, 1.0, every(10)), OUTLIERS),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_called_by_its_name_and_by_no_other(name):
    make, expected = FAULTS[name]
    assert share_of(verdicts(make, seeds=100), expected) >= 0.98


HARMLESS = {
    "ramp of 3 %": trend(200, ramp(0.03)),
    "step of 3 %": trend(200, step(0.03)),
    "modes 3 % apart": modes(50, 0.03, every(2)),
    "one run in fifty": modes(50, 3.0, every(50)),
    "one run of fifteen": modes(15, 3.0, every(15)),
    "one run in forty": modes(200, 3.0, every(40)),
    "a fast run in ten: nobody waits for it": modes(50, -0.3, every(10)),
    "outliers below a tenth of the median": modes(200, 0.07, every(10)),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_no_conclusion_is_not_warned_of(name):
    assert share_of(verdicts(HARMLESS[name], seeds=100)) >= 0.98


def test_a_noisy_drift_is_both():
    noise = np.random.default_rng(0).standard_normal(200)
    series = 100 * (1 + np.linspace(0, 1, 200) + 0.3 * noise)
    assert timing_warnings(series.tolist()) == [DRIFT, NOISY]


@pytest.mark.parametrize(("count", "expected"), [(17, []), (18, [DRIFT])])
def test_a_drift_needs_eighteen_runs(count, expected):
    # Six against six runs without overlap: z = (36 - 18) / sqrt(36 13 / 12) = 2.88, over 2.8;
    # five against five: z = (25 - 12.5) / sqrt(25 11 / 12) = 2.61.
    series = np.linspace(100, 112, count).tolist()
    assert timing_warnings(series) == expected


@pytest.mark.parametrize(("slow", "expected"), [(9, []), (10, [OUTLIERS])])
def test_outliers_are_one_run_in_twenty(slow, expected):
    # 200 runs: 5 % are 10. Spread over the series, so that they are not a drift.
    series = [100.0 + 0.1 * (run % 7) for run in range(200)]
    for run in range(slow):
        series[run * 20 + 5] = 300.0
    assert timing_warnings(series) == expected


@pytest.mark.parametrize(("slow_ms", "expected"), [(104.0, []), (106.0, [TWO_MODES])])
def test_modes_matter_from_five_percent_however_sharp_they_are(slow_ms, expected):
    assert timing_warnings([100.0, slow_ms] * 25) == expected


@pytest.mark.parametrize(
    ("samples", "expected"), [([50.0, 100.0, 300.0], []), ([50.0, 60.0, 140.0, 150.0], [NOISY])]
)
def test_three_runs_have_no_inter_quartile_range_to_warn_of(samples, expected):
    assert timing_warnings(samples) == expected


@pytest.mark.parametrize(("half_spread", "expected"), [(11.0, []), (12.0, [NOISY])])
def test_the_threshold_of_noise_by_hand(half_spread, expected):
    # 101 values evenly from 100 - h to 100 + h: the inter-quartile range is h, 10 % + 1.166 sqrt(1/101) of it
    # is 11.16. Shuffled, so that there is no drift.
    series = np.linspace(100 - half_spread, 100 + half_spread, 101)
    np.random.default_rng(1).shuffle(series)
    assert interquartile_range(series.tolist()) == pytest.approx(half_spread)
    assert timing_warnings(series.tolist()) == expected


def test_the_spread_around_a_drift_by_hand():
    """Differences 1, 2, 3, 4: quartiles 1.75 and 3.25; independent noise makes them sqrt(2) times too wide."""
    assert spread_without_drift([0.0, 1.0, 3.0, 6.0, 10.0]) == pytest.approx(1.5 / 2**0.5)
