"""The fast replay of reserved memory against the whole replay, and against an allocator without its tricks."""

import random
from dataclasses import replace

import numpy as np
import pytest

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder, packed, unpacked
from swinmr_profiling.profiler.allocator.caching_allocator import CachingAllocator
from swinmr_profiling.profiler.allocator.fit_at_limit import fit_at_limit
from swinmr_profiling.profiler.allocator.reserved_memory import ReservedMemory
from swinmr_profiling.profiler.prediction.replay import live_peak, replay
from swinmr_profiling.profiler.prediction.trace.affine_trace import align
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from tests.plain_allocator import PlainAllocator

MIB = 2**20


def run(seed, steps):
    """A random run: allocations from 16 bytes to 24 MiB and more, some of them growing with the batch."""
    source, living, made = random.Random(seed), [], 0
    events, fixed, per_sample = [], [], []
    for _ in range(steps):
        if living and source.random() < 0.48:
            events.append(-living.pop(source.randrange(len(living))))
        else:
            made += 1
            events.append(made)
            living.append(made)
            fixed.append(int(2 ** source.uniform(4, 24)))
            per_sample.append(int(2 ** source.uniform(0, 20)) if source.random() < 0.6 else 0)
    return AllocationOrder(
        np.array(events, dtype=np.int32), np.array(fixed, dtype=np.int64), np.array(per_sample)
    )


@pytest.mark.parametrize("seed", range(6))
def test_any_run_is_replayed_as_by_an_allocator_without_tricks(seed):
    order = run(seed, 800)
    memory = ReservedMemory(order)
    for batch in (1, 2, 7, 31):
        plain, handles = PlainAllocator(expandable=False), {}
        sizes = order.sizes(batch).tolist()
        for event in order.events.tolist():
            if event > 0:
                handles[event] = plain.allocate(sizes[event - 1])
            else:
                plain.free(handles.pop(-event))
        assert memory.reserved_bytes(batch) == plain.peak_reserved
        assert memory.live_bytes(batch) <= plain.peak_allocated


@pytest.mark.slow
def test_a_traced_step_is_replayed_as_by_the_whole_replay(tiny_config):
    config = load_config(tiny_config()).config
    built = build_model(config)
    affine = align(trace_training(built, config, 2), trace_training(built, config, 3))
    memory = ReservedMemory(affine.order())
    for batch in (1, 2, 3, 5, 16, 17, 100, 640, 641, 5000):
        trace = affine.at(batch)
        assert memory.reserved_bytes(batch) == replay(trace).peak_reserved_bytes
        assert memory.live_bytes(batch) == live_peak(trace)[0]
    # It is not monotone, which is why the largest batch is replayed and not interpolated.
    reserved = [memory.reserved_bytes(batch) for batch in range(2, 60)]
    assert reserved != sorted(reserved)


# 20 MiB that are released, 100 that stay, 30 a sample: 120 + 30 B reserved, 100 + 30 B alive.
SIMPLE = AllocationOrder(
    np.array([1, -1, 2, 3], dtype=np.int32),
    np.array([20, 100, 0]) * MIB,
    np.array([0, 0, 30]) * MIB,
)


def test_a_limit_is_reached_but_not_passed():
    for first_asked in (True, False):
        memory = ReservedMemory(SIMPLE)
        if first_asked:
            assert memory.reserved_bytes(4) == 240 * MIB
        assert memory.fits(4, 240 * MIB)
        assert not memory.fits(4, 240 * MIB - 1)
        # What was found out with a small limit does not stand in for what a larger one asks.
        assert not memory.fits(5, 100 * MIB)
        assert not memory.fits(5, 269 * MIB)
        assert memory.fits(5, 270 * MIB)
        assert memory.reserved_bytes(5) == 270 * MIB


def test_both_pools_count_against_the_limit():
    # 1 MiB comes from a small segment of 2, the other 12 are a segment: 14 in all.
    both = AllocationOrder(np.array([1, 2], dtype=np.int32), np.array([1, 12]) * MIB, np.array([0, 0]))
    memory = ReservedMemory(both)
    assert memory.fits(1, 14 * MIB)
    assert not ReservedMemory(both).fits(1, 13 * MIB)


def test_the_last_batch_that_is_possible_by_its_live_bytes():
    memory = ReservedMemory(SIMPLE)
    assert memory.last_possible(130 * MIB, 65535) == 1
    assert memory.last_possible(130 * MIB - 1, 65535) == 0
    assert memory.last_possible(400 * MIB, 65535) == 10
    assert memory.last_possible(400 * MIB, 7) == 7
    assert memory.last_possible(10**15, 65535) == 65535


def test_streams_share_nothing():
    """Two blocks of 30 MiB, one after the other: on one stream the second takes the first one's segment, on two not."""
    events, size = np.array([1, -1, 2, -2], dtype=np.int32), np.array([30 * MIB] * 2)
    for streams, segments in (([0, 0], 1), ([1, 1], 1), ([0, 1], 2)):
        order = AllocationOrder(events, size, 0 * size, None, np.array(streams, dtype=np.int8))
        assert ReservedMemory(order).reserved_bytes(1) == segments * 30 * MIB
        assert ReservedMemory(order).fits(1, segments * 30 * MIB)
        assert not ReservedMemory(order).fits(1, segments * 30 * MIB - 1)
        # At a limit the idle segment of the other stream is given back.
        assert fit_at_limit(order, 1, 30 * MIB).flushes == segments - 1
        allocator = CachingAllocator()
        for stream in streams:
            allocator.free(allocator.allocate(30 * MIB, stream))
        assert allocator.peak_reserved_bytes == segments * 30 * MIB


def test_an_order_keeps_its_streams():
    size = np.array([512, 512, 1024])
    optional, streams = np.array([False, True, False]), np.array([0, 2, 1], dtype=np.int8)
    order = AllocationOrder(np.array([1, 2, 3], dtype=np.int32), size, 0 * size, optional, streams)
    back = unpacked(packed(order))
    assert back.optional.tolist() == optional.tolist()
    assert back.streams.tolist() == streams.tolist()
    assert unpacked(packed(replace(order, streams=None))).streams is None


@pytest.mark.parametrize("expandable", [False, True])
def test_streams_are_allocators_of_their_own(expandable):
    """What two allocators take whose requests never meet."""
    source = random.Random(1)
    together, apart = CachingAllocator(expandable=expandable), {}
    living = []
    for _ in range(600):
        if living and source.random() < 0.48:
            stream, block, other = living.pop(source.randrange(len(living)))
            together.free(block)
            apart[stream].free(other)
            continue
        size, stream = int(2 ** source.uniform(4, 25)), source.randrange(3)
        alone = apart.setdefault(stream, CachingAllocator(expandable=expandable))
        living.append((stream, together.allocate(size, stream), alone.allocate(size)))
        assert together.reserved_bytes == sum(one.reserved_bytes for one in apart.values())
