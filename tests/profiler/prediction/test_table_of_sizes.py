"""Which batch sizes a prediction's table holds, for a step of one allocation of a whole number of GB a sample."""

from types import SimpleNamespace

import numpy as np
import pytest

from swinmr_profiling.profiler.prediction.predict import predict_sizes
from swinmr_profiling.profiler.prediction.trace.storage_trace import PHASES, Trace

GB = 10**9
# 1, 2, 3 x 1, 4, 3 x 2, ... as batches are chosen; alone the powers of two above 1,024.
USUAL = sorted({*(2**k for k in range(13)), *(3 * 2**k for k in range(9))})


def family(bytes_per_sample, *, affine=True):
    def at(batch_size):
        number = np.zeros(1, dtype=np.int8)
        return Trace(
            batch_size=batch_size,
            sizes=np.array([bytes_per_sample * batch_size]),
            phases=number,
            categories=number,
            operators=np.zeros(1, dtype=np.int32),
            operator_names=["aten.mm.default"],
            events=np.array([1, -1], dtype=np.int32),
            event_phases=np.full(2, PHASES.index("forward"), dtype=np.int8),
            step_starts=[0],
        )

    return SimpleNamespace(affine=affine or None, at=at)


@pytest.mark.parametrize(
    ("gb", "last"),
    [
        (0, 4096),
        # The first above 288 GB, the largest card's, ends the table; 3 x 96 GB are, in whole segments of 2 MiB.
        (1, 384),
        (3, 96),
        (300, 1),
    ],
)
def test_the_table_goes_beyond_the_largest_card_by_one_size(gb, last):
    sizes = predict_sizes(family(gb * GB or 1), [], expandable=False)
    assert list(sizes) == [str(size) for size in USUAL if size <= last]


def test_what_is_asked_for_is_in_the_table_in_any_case():
    sizes = predict_sizes(family(100 * GB), [5, 7], expandable=True)
    assert list(sizes) == ["1", "2", "3", "5", "7"]
    assert [size for size, row in sizes.items() if row.reserved_expandable_bytes is not None] == ["5", "7"]


def test_where_each_size_is_traced_the_table_is_short():
    sizes = predict_sizes(family(1, affine=False), [64], expandable=False)
    assert list(sizes) == ["1", "2", "3", "4", "64"]
