"""Two traces give the others of their regime, to the byte; what is not of it is refused."""

import numpy as np
import pytest

from swinmr_profiling.profiler.prediction.trace.affine_trace import NotAlignedError, align
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace


def trace(batch, sizes, events=(1, 2, -1, 3, -2, -3), operators=None, names=("aten.mm",)):
    count = len(sizes)
    return Trace(
        batch_size=batch,
        sizes=np.array(sizes, dtype=np.int64),
        phases=np.zeros(count, dtype=np.int8),
        categories=np.zeros(count, dtype=np.int8),
        operators=np.zeros(count, dtype=np.int32)
        if operators is None
        else np.array(operators, dtype=np.int32),
        operator_names=list(names),
        events=np.array(events, dtype=np.int32),
        event_phases=np.zeros(len(events), dtype=np.int8),
        step_starts=[0],
    )


def test_sizes_of_another_batch_follow_from_two():
    # 100 + 10 B, 7, 4 B
    affine = align(trace(2, [120, 7, 8]), trace(3, [130, 7, 12]))
    assert affine.slopes.tolist() == [10, 0, 4]
    assert affine.intercepts.tolist() == [100, 7, 0]
    assert affine.at(10).sizes.tolist() == [200, 7, 40]
    assert affine.at(10).batch_size == 10
    assert affine.explains(trace(5, [150, 7, 20]))
    assert not affine.explains(trace(5, [150, 7, 21]))


def test_live_bytes_are_the_sum_of_what_is_not_released_rounded_up():
    # +120, +7, -120, +8, -7, -8
    assert trace(2, [120, 7, 8]).live_bytes().tolist() == [120, 127, 7, 15, 8, 0]
    # each rounded up to 512
    assert trace(2, [513, 512], events=(1, 2, -1)).live_bytes(512).tolist() == [1024, 1536, 512]


@pytest.mark.parametrize(
    "other",
    [
        trace(3, [130, 7, 12], events=(1, 2, -2, 3, -1, -3)),  # another order
        trace(3, [130, 7, 12], names=("aten.bmm",)),  # another operator
        trace(3, [130, 7]),  # fewer
        trace(4, [131, 7, 12]),  # 11 bytes more over two samples
        trace(3, [119, 7, 12]),  # one byte less for a sample more
    ],
)
def test_what_is_not_of_one_regime_is_refused(other):
    with pytest.raises(NotAlignedError):
        align(trace(2, [120, 7, 8]), other)


def test_a_size_below_one_byte_is_outside_the_range():
    affine = align(trace(2, [10, 7, 8]), trace(3, [20, 7, 12]))
    with pytest.raises(NotAlignedError):
        affine.at(1)  # 10 - 10 = 0


def test_a_batch_of_three_billion_is_computed_in_whole_numbers_or_refused():
    affine = align(trace(2, [120, 7, 8]), trace(3, [130, 7, 12]))
    assert affine.at(3_000_000_000).sizes.tolist() == [30_000_000_100, 7, 12_000_000_000]
    huge = align(trace(2, [2**40, 7, 8]), trace(3, [2**41, 7, 12]))
    with pytest.raises(OverflowError):
        huge.at(3_000_000_000)
