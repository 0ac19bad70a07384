"""Each predicted quantity has an interval of its own."""

import pytest

from swinmr_profiling.profiler.record.prediction_intervals import INTERVAL_SHARES, interval_bytes


@pytest.mark.parametrize(
    ("quantity", "predicted", "interval"),
    [
        ("live", 1000, [990, 1010]),
        ("reserved", 1000, [950, 1050]),
        ("reserved", 1001, [950, 1052]),  # 950.95 and 1051.05: outwards
        ("live", 0, [0, 0]),
    ],
)
def test_by_hand(quantity, predicted, interval):
    assert interval_bytes(quantity, predicted) == interval


def test_there_is_one_for_each_quantity_and_the_figure_lies_in_it():
    assert set(INTERVAL_SHARES) == {"live", "reserved"}
    for quantity in INTERVAL_SHARES:
        low, high = interval_bytes(quantity, 10**12)
        assert low < 10**12 < high
