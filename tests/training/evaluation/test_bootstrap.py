"""The bootstrap over volumes: by hand, against scipy, and what it must not pretend."""

import numpy as np
import pytest
import scipy.stats

from swinmr_profiling.training.evaluation.evaluation_summary import (
    FEW_VOLUMES,
    bootstrap_block,
    volume_interval,
)


def test_two_volumes_by_hand():
    """Means of two draws from 0 and 1: 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4, so 2.5 % is 0 and 97.5 % is 1."""
    assert volume_interval([0.0, 1.0], [1, 1]) == (0.0, 1.0)


def test_slices_are_drawn_with_their_volume():
    """Volumes of 1 slice of 0 and 3 slices of 1: the same mean of drawn slices is 0, 3/4 or 1."""
    assert volume_interval([0.0, 3.0], [1, 3]) == (0.0, 1.0)
    # A hundred copies of a slice make the interval no narrower.
    wide, copied = (
        volume_interval([1.0, 2.0, 4.0], [1, 1, 1]),
        volume_interval([100.0, 200.0, 400.0], [100] * 3),
    )
    assert copied == pytest.approx(wide)


def test_agrees_with_scipy():
    values = np.random.default_rng(0).normal(30, 2, 40)
    ours = volume_interval(list(values), [1] * 40)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.05)


def test_repeatable_and_none_where_one_volume_is_all():
    values = list(np.random.default_rng(0).random(12))
    assert volume_interval(values, [1] * 12) == volume_interval(values, [1] * 12)
    assert volume_interval(values, [1] * 12, seed=1) != volume_interval(values, [1] * 12)
    assert volume_interval([1.0], [3]) is None
    assert volume_interval([1.0, 0.0], [3, 0]) is None  # a volume without defined values is none


@pytest.mark.parametrize(("volumes", "words"), [(1, "null"), (2, "too narrow"), (FEW_VOLUMES, "spread")])
def test_says_what_it_is_worth(volumes, words):
    notes = bootstrap_block(volumes)["notes"]
    assert words in notes[-1]
    assert bootstrap_block(volumes)["resamples"] == 10_000
