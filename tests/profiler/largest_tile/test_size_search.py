"""The largest size by looking: of memory that grows, that falls, and of sizes that are refused."""

import itertools

import pytest

from swinmr_profiling.profiler.largest_tile.size_search import Look, SizeSearch


def searched(excess, start=8, last=1000):
    """(the answer, the steps that were looked at)."""
    seen = []

    def look(step):
        seen.append(step)
        return Look(excess(step))

    search = SizeSearch(look, last)
    return search.largest(start), seen, search


@pytest.mark.parametrize(
    ("start", "room", "fixed", "slope"),
    list(itertools.product((1, 40, 900), (5_000, 123_456, 10**9), (0, 4_000), (1, 7))),
)
def test_memory_that_grows_with_the_area(start, room, fixed, slope):
    found, seen, search = searched(lambda step: fixed + slope * step**2 - room, start)
    # Counted up, one by one.
    wanted = max((step for step in range(1, 1001) if fixed + slope * step**2 <= room), default=None)
    assert found == wanted
    assert search.is_monotone
    assert len(seen) == len(set(seen)) <= 45
    if wanted and wanted < 1000:
        assert {wanted, wanted + 1} <= set(seen)


def test_memory_in_stairs():
    # Segments of 2 MiB: 64 steps need as much as 62.
    found, _, _ = searched(lambda step: -(-(step**2) // 500) * 500 - 4000)
    assert found == 63  # 63^2 = 3969 is 4000 rounded up, 64^2 = 4096 is 4500


def test_a_size_beyond_one_that_does_not_fit_is_looked_at():
    # 31 needs too much, 32 and 33 do not: what the allocator reserves may fall.
    heavy = {31: 10}
    found, seen, search = searched(lambda step: heavy.get(step, step - 33), start=31)
    assert found == 33
    assert {31, 32, 33, 34} <= set(seen)
    assert not search.is_monotone


def test_a_quarter_more_is_looked_at():
    # From 41 to 49 too much; 41 x 1.25, rounded up to 52, fits again, up to 60.
    found, _, _ = searched(lambda step: 5 if 41 <= step < 50 else step - 60, start=30)
    assert found == 60


def test_nothing_fits():
    found, seen, _ = searched(lambda step: step)
    assert found is None
    assert 1 in seen


def test_all_fits():
    found, seen, _ = searched(lambda step: -1, last=77)
    assert found == 77
    assert len(seen) < 15


def test_where_too_much_is_alive_nothing_larger_is_looked_at():
    seen = []

    def look(step):
        seen.append(step)
        return Look(step - 50, step - 53)

    assert SizeSearch(look, 1000).largest(50) == 50
    # 54 is the first of which more is alive than there is; larger ones were only looked at to find 50.
    assert {51, 52, 53, 54} <= set(seen)
    assert len([step for step in seen if step > 54]) <= 2


def test_a_network_of_one_size():
    found, seen, _ = searched(lambda step: -100 if step == 8 else None)
    assert found == 8
    assert 9 in seen
