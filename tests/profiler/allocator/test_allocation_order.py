"""The order of allocations that a profile keeps: what it says of a batch, and what is not an order of a run."""

import base64
import zlib

import numpy as np
import pytest

from swinmr_profiling.profiler.allocator.allocation_order import (
    AllocationOrder,
    AllocationOrderError,
    packed,
    unpacked,
)


def order(events=(1, 2, -1, 3, -3, -2), fixed=(100, 7, 100), per_sample=(10, 0, 10)):
    return AllocationOrder(
        np.array(events, dtype=np.int32),
        np.array(fixed, dtype=np.int64),
        np.array(per_sample, dtype=np.int64),
    )


def text(values, kind):
    return base64.b64encode(zlib.compress(np.array(values, dtype=kind).tobytes())).decode()


def block(sizes=(7, 0, 100, 10), steps=(1, 0, -2, 1, -1, -2)):
    return {"sizes": text(sizes, "<i8"), "order": text(steps, "<i4")}


def test_the_texts_by_hand():
    # Pairs in ascending order: (7, 0) is 0 and (100, 10) is 1. Released: of two made the second last, of three the
    # last, and of three the second last.
    assert packed(order()) == {
        "sizes": base64.b64encode(zlib.compress(np.array([7, 0, 100, 10], "<i8").tobytes(), 9)).decode(),
        "order": base64.b64encode(
            zlib.compress(np.array([1, 0, -2, 1, -1, -2], "<i4").tobytes(), 9)
        ).decode(),
        "optional": base64.b64encode(zlib.compress(bytes([0, 0]), 9)).decode(),
    }


def test_what_was_packed_comes_back():
    for found in (unpacked(packed(order())), unpacked(block())):
        assert found.events.tolist() == [1, 2, -1, 3, -3, -2]
        assert found.fixed_bytes.tolist() == [100, 7, 100]
        assert found.bytes_per_sample.tolist() == [10, 0, 10]


def test_sizes_of_any_batch():
    assert order().sizes(5).tolist() == [150, 7, 150]
    # 3 x (100 + 10 x 10^18) are more than 64 bits hold: computed all the same.
    assert order().sizes(10**18).tolist() == [10**19 + 100, 7, 10**19 + 100]


def test_the_largest_sizes_that_are_read():
    found = unpacked(block(sizes=(2**62, 0, -(2**62), 10)))
    assert found.fixed_bytes.tolist() == [-(2**62), 2**62, -(2**62)]


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"sizes": block()["sizes"]},
        {**block(), "order": 7},
        {**block(), "sizes": "%%%"},
        {**block(), "sizes": "AAAA"},
        {**block(), "sizes": block()["sizes"][:-8]},
        block(sizes=(7,)),
        block(sizes=(7, 0, 100)),
        block(sizes=(7, -1)),  # shrinks with the batch
        block(sizes=(2**63 - 1, 0, 100, 10)),
        block(sizes=(-(2**62) - 1, 0, 100, 10)),
        block(sizes=()),
        block(steps=()),
        block(steps=(1, 2)),  # there is no third pair
        block(steps=(-1,)),  # nothing was made
        block(steps=(1, -2)),  # one was made
        block(steps=(1, -1, -1)),  # released twice
        block(steps=(1, 1, -1, 1, -2)),  # the same, in between
        {**block(), "order": text([1], "<i1")},
    ],
)
def test_what_is_no_order_is_refused(damaged):
    with pytest.raises(AllocationOrderError, match="allocations"):
        unpacked(damaged)


def test_a_text_that_unfolds_without_end_is_refused():
    bomb = base64.b64encode(zlib.compress(bytes(65 * 2**20), 9)).decode()
    with pytest.raises(AllocationOrderError, match=r"allocations\.order is truncated, or far too long"):
        unpacked({**block(), "order": bomb})
