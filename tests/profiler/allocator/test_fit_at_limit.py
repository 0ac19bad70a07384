"""Fits, fits with retries, does not fit: allocations of whole segments, so that each figure is a sum of them."""

import numpy as np
import pytest

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder, packed, unpacked
from swinmr_profiling.profiler.allocator.fit_at_limit import fit_at_limit

MIB = 2**20


def order(events, mib, optional=()):
    """Sizes in MiB times the batch."""
    count = len(mib)
    flags = np.isin(np.arange(count), optional)
    return AllocationOrder(
        np.array(events, dtype=np.int32),
        np.zeros(count, dtype=np.int64),
        np.array(mib, dtype=np.int64) * MIB,
        flags,
    )


# 20 MiB, given back; then 30, given back; then 40: segments of 20, 30 and 40 MiB, of which one at a time is in use.
SEPARATE = order([1, -1, 2, -2, 3, -3], [20, 30, 40])


@pytest.mark.parametrize(
    ("limit_mib", "fits", "flushes", "words"),
    [
        (90, True, 0, "fits"),
        # 20 + 30 are cached and 40 more do not fit into 89: both are given back.
        (89, True, 1, "fits, slower (1 flush)"),
        (50, True, 1, "fits, slower (1 flush)"),
        # 20 is given back for 30, then 30 for 40.
        (49, True, 2, "fits, slower (2 flushes)"),
        (40, True, 2, "fits, slower (2 flushes)"),
        (39, False, 2, "does not fit"),
    ],
)
def test_cached_segments_are_given_back(limit_mib, fits, flushes, words):
    found = fit_at_limit(SEPARATE, 1, limit_mib * MIB)
    assert (found.fits, found.flushes, found.words) == (fits, flushes, words)


def test_the_batch_scales_the_sizes():
    assert fit_at_limit(SEPARATE, 2, 180 * MIB).words == "fits"
    assert fit_at_limit(SEPARATE, 2, 179 * MIB).flushes == 1


def test_blocks_that_are_kept_count():
    assert fit_at_limit(SEPARATE, 1, 110 * MIB, kept_bytes=[20 * MIB]).words == "fits"
    # The kept 20 MiB are a segment of their own, and the run reuses nothing of it.
    assert fit_at_limit(SEPARATE, 1, 109 * MIB, kept_bytes=[20 * MIB]).words != "fits"


def test_a_workspace_that_does_not_fit_is_done_without():
    # 40 stay, a workspace of 30 comes and goes, 20 more stay.
    run = order([1, 2, -2, 3], [40, 30, 20], optional=[1])
    assert fit_at_limit(run, 1, 70 * MIB).words == "fits"  # 20 come from the workspace's segment
    slower = fit_at_limit(run, 1, 69 * MIB)
    assert (slower.fits, slower.slower_convolutions) == (True, 1)
    assert "1 convolution without workspace" in slower.words
    assert not fit_at_limit(run, 1, 59 * MIB).fits
    needed = order([1, 2, -2, 3], [40, 30, 20])
    assert not fit_at_limit(needed, 1, 69 * MIB).fits


def test_a_profile_keeps_which_allocations_are_workspaces():
    run = order([1, 2, -2, 3], [40, 30, 30], optional=[1])
    kept = unpacked(packed(run))
    assert kept.optional.tolist() == [False, True, False]
    assert fit_at_limit(kept, 1, 70 * MIB - 1) == fit_at_limit(run, 1, 70 * MIB - 1)
    earlier = unpacked({key: text for key, text in packed(run).items() if key != "optional"})
    assert earlier.optional is None
    assert earlier.fixed_bytes.tolist() == run.fixed_bytes.tolist()
