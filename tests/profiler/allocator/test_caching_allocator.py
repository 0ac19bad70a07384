"""The simulated allocator against sequences worked out by hand, and against a second one written without its tricks."""

import random

import pytest

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemoryError
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from tests.plain_allocator import PlainAllocator

MIB = 2**20


def state(allocator):
    return allocator.allocated_bytes, allocator.reserved_bytes


def test_small_requests_share_segments_of_2_mib():
    allocator = CachingAllocator()
    allocator.allocate(1)  # 512
    allocator.allocate(600)  # 2 x 512
    assert state(allocator) == (512 + 1024, 2 * MIB)
    allocator.allocate(MIB)  # of the 2 MiB - 1,536 that are left
    assert state(allocator) == (1536 + MIB, 2 * MIB)
    allocator.allocate(MIB)  # 1 MiB - 1,536 are left: a second segment
    assert state(allocator) == (1536 + 2 * MIB, 4 * MIB)


def test_remainders_of_up_to_one_mib_are_handed_out_with_a_large_block():
    allocator = CachingAllocator()
    first = allocator.allocate(19 * MIB // 2)  # 9.5 of 20 MiB: 10.5 stay
    assert state(allocator) == (19 * MIB // 2, 20 * MIB)
    allocator.allocate(19 * MIB // 2)  # of 10.5: 1.0 would stay, which is not more than 1 MiB
    assert state(allocator) == (20 * MIB, 20 * MIB)
    allocator.free(first)
    allocator.allocate(MIB + 1)  # 1 MiB + 512 of 9.5
    assert state(allocator) == (21 * MIB // 2 + MIB + 512, 20 * MIB)


@pytest.mark.parametrize(
    ("request_bytes", "allocated", "reserved"),
    [
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),  # still shares
        (10 * MIB - 511, 10 * MIB, 10 * MIB),  # rounds to 10 MiB: a segment of its own
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),  # 12 less 10 and 512 bytes: split
        (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB over: not split
        # 3e9 is 5,859,375 x 512 and 1430.5 x 2 MiB: 1431 x 2 MiB = 3,001,024,512, and the 1,024,512 bytes over are
        # less than 1 MiB (1,048,576).
        (3 * 10**9, 3_001_024_512, 3_001_024_512),
    ],
)
def test_segments_of_their_own_are_multiples_of_2_mib(request_bytes, allocated, reserved):
    allocator = CachingAllocator()
    allocator.allocate(request_bytes)
    assert state(allocator) == (allocated, reserved)


def test_free_neighbours_become_one_block():
    allocator = CachingAllocator()
    first, second, third = (allocator.allocate(5 * MIB) for _ in range(3))  # of 20: 5 stay
    allocator.free(first)
    allocator.free(third)  # joins the 5 behind it
    allocator.free(second)  # joins both sides: 20 in one
    block = allocator.allocate(20 * MIB)
    assert block.size == 20 * MIB
    assert state(allocator) == (20 * MIB, 20 * MIB)


def test_the_smallest_block_that_fits_is_taken():
    allocator = CachingAllocator()
    large, _, small, _ = (allocator.allocate(size * MIB) for size in (8, 2, 4, 6))  # 20 in all
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(7 * MIB // 2).size == 4 * MIB  # of 4, not of 8; 0.5 would stay
    assert state(allocator)[1] == 20 * MIB


def test_peaks_start_again_from_what_is_in_use():
    allocator = CachingAllocator()
    block = allocator.allocate(30 * MIB)
    allocator.allocate(12 * MIB)
    allocator.free(block)
    assert allocator.peak_allocated_bytes == 42 * MIB
    allocator.reset_peaks()
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (12 * MIB, 42 * MIB)


def test_at_the_limit_cached_segments_are_given_back_first():
    allocator = CachingAllocator(limit_bytes=50 * MIB)
    block = allocator.allocate(30 * MIB)
    allocator.free(block)
    allocator.allocate(40 * MIB)  # 30 + 40 are too many: the free 30 go
    assert (allocator.reserved_bytes, allocator.retries) == (40 * MIB, 1)
    with pytest.raises(SimulatedOutOfMemoryError, match="do not fit in 52428800") as error:
        allocator.allocate(12 * MIB)
    assert error.value.requested_bytes == 12 * MIB
    assert state(allocator) == (40 * MIB, 40 * MIB)
    assert allocator.allocate(10 * MIB).size == 10 * MIB  # what fits still does


def test_expandable_segments_grow_by_pages_of_20_mib():
    allocator = CachingAllocator(expandable=True)
    allocator.allocate(15 * MIB)  # one page: 5 stay
    allocator.allocate(15 * MIB)  # 10 are missing: one page more; each block is split exactly
    assert state(allocator) == (30 * MIB, 40 * MIB)
    allocator.allocate(10 * MIB)
    assert state(allocator) == (40 * MIB, 40 * MIB)
    allocator.allocate(600)
    assert state(allocator) == (40 * MIB + 1024, 42 * MIB)


def test_the_end_of_an_expandable_segment_is_taken_last():
    allocator = CachingAllocator(expandable=True)
    _, middle, _ = (allocator.allocate(size * MIB) for size in (5, 6, 5))  # one page: 4 stay at the end
    allocator.free(middle)
    block = allocator.allocate(3 * MIB)  # the end (4) fits better, the middle (6) cannot grow
    assert block.offset == 5 * MIB
    assert allocator.allocate(4 * MIB).offset == 16 * MIB
    assert state(allocator) == ((5 + 5 + 3 + 4) * MIB, 20 * MIB)


def test_pages_in_the_middle_of_an_expandable_segment_are_given_back_and_used_again():
    allocator = CachingAllocator(expandable=True)
    first = allocator.allocate(30 * MIB)  # [0, 30) of 40
    allocator.allocate(12 * MIB)  # [30, 42): 2 are missing, 60 mapped
    allocator.free(first)
    allocator.empty_cache()  # page [0, 20) is free as a whole; [20, 30) and [42, 60) are not
    assert state(allocator) == (12 * MIB, 40 * MIB)
    # 35 do not fit into [0, 30); at the end 18 are free, 17 missing: one page.
    assert allocator.allocate(35 * MIB).offset == 42 * MIB
    assert state(allocator) == (47 * MIB, 60 * MIB)
    # 25 fit into [0, 30) once page [0, 20) is mapped again.
    assert allocator.allocate(25 * MIB).offset == 0
    assert state(allocator) == (72 * MIB, 80 * MIB)


def test_an_expandable_segment_at_the_limit_gives_pages_back():
    allocator = CachingAllocator(limit_bytes=80 * MIB, expandable=True)
    first = allocator.allocate(35 * MIB)  # [0, 35) of 40
    allocator.allocate(20 * MIB)  # [35, 55) of 60
    allocator.free(first)
    # 45 more: 5 are free at the end, 40 missing, 60 + 40 are too many. Pages [0, 20) go, [20, 35) is not a page.
    allocator.allocate(45 * MIB)
    assert (allocator.allocated_bytes, allocator.reserved_bytes, allocator.retries) == (65 * MIB, 80 * MIB, 1)
    with pytest.raises(SimulatedOutOfMemoryError):
        allocator.allocate(16 * MIB)  # 15 are free at [20, 35), nothing at the end


def blocks_of(allocator, living):
    """All blocks that are handed out or cached, by walking from each segment's first."""
    found, seen = [], set()
    cached = [
        block for pool in allocator._pools.values() for block in [*pool.blocks.values(), *pool.unmapped]
    ]
    for block in [*cached, *living]:
        while block.previous is not None:
            block = block.previous
        while block is not None and id(block) not in seen:
            seen.add(id(block))
            found.append(block)
            block = block.next
    return found


def random_requests(seed, steps):
    """(True, bytes) to allocate, (False, position among the living) to free."""
    source, living = random.Random(seed), 0
    for _ in range(steps):
        if living and source.random() < 0.48:
            living -= 1
            yield False, source.randrange(living + 1)
        else:
            living += 1
            yield True, int(2 ** source.uniform(4, 25.5))


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_keeps_the_books(seed, expandable):
    allocator, plain = CachingAllocator(expandable=expandable), PlainAllocator(expandable)
    living, handles = [], []
    peaks = (0, 0)
    for number, (allocates, value) in enumerate(random_requests(seed, 1500)):
        if allocates:
            living.append(allocator.allocate(value))
            handles.append(plain.allocate(value))
        else:
            allocator.free(living.pop(value))
            plain.free(handles.pop(value))
        assert state(allocator) == (plain.allocated, plain.reserved)
        assert allocator.allocated_bytes == sum(block.size for block in living) <= allocator.reserved_bytes
        now = allocator.peak_allocated_bytes, allocator.peak_reserved_bytes
        assert now >= peaks
        assert now[1] >= peaks[1]
        peaks = now
        if number % 50 == 0:
            assert all(not block.free for block in living)
            for block in blocks_of(allocator, living):
                assert block.size > 0
                if block.next is not None:
                    assert block.offset + block.size == block.next.offset  # no overlap, no gap
                    joined = block.free and block.next.free and block.mapped == block.next.mapped
                    assert not joined
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (
        plain.peak_allocated,
        plain.peak_reserved,
    )


@pytest.mark.parametrize("expandable", [False, True])
def test_emptying_the_cache_now_and_then_keeps_the_books(expandable):
    allocator = CachingAllocator(limit_bytes=700 * MIB, expandable=expandable)
    living = []
    for number, (allocates, value) in enumerate(random_requests(11, 3000)):
        if not allocates and living:
            allocator.free(living.pop(value % len(living)))
        elif allocates:
            try:
                living.append(allocator.allocate(value))
            except SimulatedOutOfMemoryError:
                allocator.free(living.pop(0))
        if number % 200 == 0:
            allocator.empty_cache()
        assert allocator.allocated_bytes == sum(block.size for block in living)
        assert allocator.allocated_bytes <= allocator.reserved_bytes <= 700 * MIB
        if number % 50 == 0:
            mapped = sum(block.size for block in blocks_of(allocator, living) if block.mapped)
            assert allocator.reserved_bytes == mapped
    assert allocator.retries > 0
    for block in living:
        allocator.free(block)
    allocator.empty_cache()
    assert state(allocator) == (0, 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("expandable", [False, True])
def test_a_traced_training_run_is_replayed_alike(tiny_config, expandable):
    config = load_config(tiny_config()).config
    trace = trace_training(build_model(config), config, 4)
    allocator, plain = CachingAllocator(expandable=expandable), PlainAllocator(expandable)
    blocks, handles = {}, {}
    for event in trace.events.tolist():
        if event > 0:
            blocks[event] = allocator.allocate(int(trace.sizes[event - 1]))
            handles[event] = plain.allocate(int(trace.sizes[event - 1]))
        else:
            allocator.free(blocks.pop(-event))
            plain.free(handles.pop(-event))
        assert state(allocator) == (plain.allocated, plain.reserved)
