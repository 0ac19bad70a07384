"""Memory of a rank, summed by hand for three equal layers under every strategy, to the byte.

W: bytes of a layer's weight. AdamW without foreach has three W of temporaries where a rank updates more than one layer
(the root, the quotient, and the quotient of the layer before), two where it updates one.
"""

import pytest
from torch.nn.parallel import DistributedDataParallel

from swinmr_profiling.configs.sections.strategy import DdpSection
from swinmr_profiling.profiler.ranks import fake_ranks
from tests.profiler.ranks.three_layers import peak_without_scalars, traced

W = 2048 * 2048 * 4
A = 8 * 2048 * 4  # an activation of eight samples


@pytest.mark.parametrize(
    ("training", "layers"),
    [
        # Weights 3, gradients 3, states 6, buckets 3, temporaries 3.
        ({}, 18),
        ({"ddp": {"static_graph": True}}, 18),
        ({"ddp": {"find_unused_parameters": True}}, 18),
        ({"accumulate": 2}, 18),
        # Gradients are the buckets.
        ({"ddp": {"gradient_as_bucket_view": True}}, 15),
    ],
)
def test_ddp(training, layers):
    assert peak_without_scalars(traced("ddp", 2, **training).trace) == layers * W


def test_buckets_are_those_that_ddp_itself_reports(monkeypatch):
    """The first bucket is full with one layer (1 MiB), the second takes the other two (25 MiB would hold one: a bucket
    is full once it is over its size). Before the order of use is known there is one bucket."""
    made = []
    init = DistributedDataParallel.__init__
    monkeypatch.setattr(
        DistributedDataParallel, "__init__", lambda self, *a, **k: (made.append(self), init(self, *a, **k))[1]
    )
    step = traced("ddp", 2)
    reported = made[0]._get_ddp_logging_data()
    assert reported["bucket_sizes"] == str(3 * W)
    assert reported["rebuilt_bucket_sizes"] == f"{W}, {2 * W}"
    reduced = [one.whole_bytes for one in step.sent if one.kind == "all_reduce"]
    assert reduced == [W, 2 * W]
    # In a ring of two each rank sends all of it: 2 (n - 1) / n.
    assert sum(one.ring_bytes for one in step.sent) == 3 * W


def test_a_smaller_cap_makes_more_buckets():
    step = traced("ddp", 4, ddp={"bucket_cap_mib": 8})
    assert [one.whole_bytes for one in step.sent] == [W, W, W]
    assert sum(one.ring_bytes for one in step.sent) == 3 * W * 2 * 3 // 4


@pytest.mark.parametrize(("rank", "layers"), [(0, 16), (1, 13)])
def test_zero1(rank, layers):
    """Weights 3, gradients 3, buckets 3; of states the first rank keeps two layers' and the second one's."""
    assert 9 + (4 + 3, 2 + 2)[rank] == layers
    assert peak_without_scalars(traced("zero1", 2, rank=rank).trace) == layers * W


@pytest.mark.parametrize("size", [2, 4, 8, 64])
def test_fsdp_with_even_shards(size):
    """In the backward pass of the middle layer: its weight (gathered) and its gradient, the first layer's gather ahead
    of its turn, what the last layer scatters: 4 W. Of shards all weights and states, and the last gradient. Six
    activations: the input, the target, two saved, and two gradients of them."""
    step = traced("fsdp", size)
    assert peak_without_scalars(step.trace) == 10 * W // size + 4 * W + 6 * A
    # Gathered twice (the last layer once more, which is let go after the forward pass), scattered once.
    assert [one.whole_bytes for one in step.sent if one.kind == "reduce_scatter"] == [W] * 3
    assert [one.whole_bytes for one in step.sent if one.kind == "all_gather"] == [W] * 6


@pytest.mark.parametrize(
    ("size", "width", "padded_rows", "rank", "rows"),
    [
        # Sixteen each; the last rank has none, but room for sixteen.
        (64, 1000, 1024, 0, 16),
        (64, 1000, 1024, 63, 0),
        # 126 each, of the last rank seven less.
        (8, 1001, 1008, 0, 126),
        (8, 1001, 1008, 7, 119),
    ],
)
def test_fsdp_pads_uneven_shards(size, width, padded_rows, rank, rows):
    """States are of the rows that there are, gradients and weights of the padded ones, and the whole gradient is not
    padded."""
    row = width * 4
    padded, whole, activation = padded_rows * row, width * row, 8 * row
    expected = (3 + 1) * padded // size + 6 * rows * row + 3 * padded + whole + 6 * activation
    assert peak_without_scalars(traced("fsdp", size, width=width, rank=rank).trace) == expected


def test_fsdp_that_keeps_gathered_weights_gathers_them_once():
    step = traced("fsdp", 4, fsdp={"reshard_after_forward": False})
    assert [one.whole_bytes for one in step.sent if one.kind == "all_gather"] == [W] * 3
    assert peak_without_scalars(step.trace) > peak_without_scalars(traced("fsdp", 4).trace)


def test_fsdp_in_bf16_gathers_half_the_bytes():
    step = traced("fsdp", 2, fsdp={"param_dtype": "bf16", "reduce_dtype": "fp32"})
    assert {one.whole_bytes for one in step.sent if one.kind == "all_gather"} == {W // 2}
    assert {one.whole_bytes for one in step.sent if one.kind == "reduce_scatter"} == {W}


def test_one_process_under_any_strategy_is_one_process_alone():
    """Weights 3, gradients 3, states 6, temporaries 3: no buckets, no shards."""
    for strategy in ("ddp", "zero1", "fsdp"):
        assert peak_without_scalars(traced(strategy, 1).trace) == 15 * W


def test_defaults_of_the_section_are_torchs():
    assert DdpSection().bucket_cap_mib is None


def test_a_group_of_this_process_is_left_alone(monkeypatch):
    monkeypatch.setattr(fake_ranks.dist, "is_initialized", lambda: True)
    with pytest.raises(fake_ranks.RanksError, match="another group"), fake_ranks.fake_rank(2):
        pass
