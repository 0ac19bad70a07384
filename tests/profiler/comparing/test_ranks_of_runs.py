"""Whether ranks of runs differ: SciPy's Mann-Whitney test as it is asked, by hand."""

import random

import pytest

from swinmr_profiling.profiler.comparing.latency_difference import rank_test, smallest_p


def test_by_hand():
    # Of the C(6, 3) = 20 equally likely orders of 3 and 3, two are as extreme as all of one below all of the other.
    assert rank_test([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert smallest_p(3, 3) == pytest.approx(2 / 20)
    # U = 1: one inversion, from both sides: the orders with U <= 1 are 2 of 20, twice that.
    assert rank_test([1, 2, 4], [3, 5, 6]) == pytest.approx(4 / 20)
    assert rank_test([5.0], [5.0]) == 1.0
    assert rank_test([7.0] * 30, [7.0] * 20) == 1.0


def test_share_of_false_alarms_is_what_it_claims():
    """Two series of one skewed distribution: 5 % are called different. Binomial(2000, 0.05): 100 +- 29 (3 sigma)."""
    generator = random.Random(11)
    series = [[generator.expovariate(1) for _ in range(20)] for _ in range(4000)]
    alarms = sum(rank_test(*pair) < 0.05 for pair in zip(series[::2], series[1::2], strict=True))
    assert 71 <= alarms <= 129
