"""Batches that live only through cache flushes, from a setting of three allocations."""

import numpy as np
import pytest

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder, packed
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import fits_slower, largest_batch
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from tests.training_profiles import setting

MIB = 2**20


def run(optional=False, allocations=True):
    """Per sample 20 MiB that come and go, then 30 MiB: 50 B MiB reserved, 30 B alive at most."""
    order = AllocationOrder(
        np.array([1, -1, 2], dtype=np.int32),
        np.zeros(2, dtype=np.int64),
        np.array([20, 30], dtype=np.int64) * MIB,
        np.array([optional, False]),
    )
    return MemorySetting.model_validate(
        {
            **setting({1: (30, 50)}),
            "affine_from_batch": 1,
            "allocations": packed(order) if allocations else None,
            "validation": None,
            "ddp_bucket_bytes": 0,
        }
    )


def card(mib):
    return Budget("card", mib * MIB, headroom_share=0, context_bytes=0)


@pytest.mark.parametrize(
    ("mib", "largest", "slower"),
    [
        # 250 hold 5 with the cache; 8 x 30 = 240 without it, and 9 x 30 = 270 do not fit.
        (250, 5, {"batch_size": 8, "flushes": 1, "slower_convolutions": 0}),
        (50, 1, None),
        (60, 1, {"batch_size": 2, "flushes": 1, "slower_convolutions": 0}),
        (30, None, {"batch_size": 1, "flushes": 1, "slower_convolutions": 0}),
        (29, None, None),
    ],
)
def test_beyond_the_largest(mib, largest, slower):
    own = run()
    assert largest_batch(own, card(mib)) == largest
    found = fits_slower(own, largest, card(mib))
    assert (None if found is None else found.model_dump()) == slower


def test_a_workspace_alone_does_not_decide():
    # Of batch 1, 20 MiB are a workspace: at 29 MiB neither fits; at 30 the workspace's segment is given back.
    found = fits_slower(run(optional=True), None, card(30))
    assert (found.batch_size, found.flushes) == (1, 1)
    assert fits_slower(run(optional=True), None, card(29)) is None


def test_nothing_to_replay():
    assert fits_slower(run(allocations=False), 1, card(60)) is None
