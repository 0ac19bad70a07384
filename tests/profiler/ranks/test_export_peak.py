"""Putting a whole checkpoint together: what it takes beside the shards, by the allocator's events of doing it."""

import pytest
import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.testing._internal.distributed.fake_pg import FakeStore

from swinmr_profiling.profiler.ranks.measured_rank import MARK, peak_after_mark
from swinmr_profiling.profiler.ranks.predicted_rank import gathered_bytes
from swinmr_profiling.training.strategies.engine import build_engine, whole
from tests.profiler.ranks.three_layers import config_of, three_layers


def measured_gather(config, width, size):
    """Bytes at most, in this process as the first of many: whole tensors, one after the other, of no sense."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        network = build_engine(config, size, torch.device("cpu")).shard(three_layers(width).module)
        with (
            torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
            ) as profiler,
            record_function(MARK),
        ):
            for tensor in network.state_dict().values():
                assert whole(tensor.detach()).shape == (width, width)
    finally:
        dist.destroy_process_group()
    return peak_after_mark(profiler)


@pytest.mark.parametrize(
    ("width", "size", "expected"),
    [
        (1024, 4, 1024 * 1024 * 4),
        # Sixteen rows of each of 64, in which 24 are padding.
        (1000, 64, 1024 * 1000 * 4),
    ],
)
def test_one_tensor_is_whole_at_a_time(width, size, expected):
    config = config_of("fsdp", width)
    assert gathered_bytes(three_layers(width), config, size) == expected
    assert measured_gather(config, width, size) == pytest.approx(expected, abs=1024)


def test_shards_on_the_host_are_put_together_there():
    config = config_of("fsdp", 1024, fsdp={"offload_to_cpu": True})
    assert gathered_bytes(three_layers(1024), config, 4) == 0


@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_whole_parameters_need_nothing(strategy):
    assert gathered_bytes(three_layers(1024), config_of(strategy, 1024), 4) == 0
