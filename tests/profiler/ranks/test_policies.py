"""FSDP2's policies, summed by hand for three equal layers, to the byte: shards on the host, bf16, checkpoints in units.

W: bytes of a layer's weight in fp32; A: of an activation of eight samples. See test_hand_sums.py for the plain sums.
"""

from collections import Counter
from dataclasses import replace

import pytest

from swinmr_profiling.profiler.allocator.allocation_order import packed, unpacked
from swinmr_profiling.profiler.allocator.reserved_memory import ReservedMemory
from swinmr_profiling.profiler.prediction.replay import replay
from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.prediction.trace.affine_trace import AffineTrace
from swinmr_profiling.profiler.prediction.trace.storage_trace import ON_STREAM
from swinmr_profiling.profiler.ranks.predicted_rank import UNTESTED_OFFLOAD, kept_bytes, predict_rank
from swinmr_profiling.profiler.ranks.traced_rank import RANK_STEPS, trace_rank
from tests.profiler.ranks.three_layers import (
    config_of,
    peak_without_scalars,
    three_layers,
    three_pairs,
    traced,
)

WIDTH = 1024
W, A = WIDTH * WIDTH * 4, 8 * WIDTH * 4
OFFLOADED = {"offload_to_cpu": True}


def sent(step, kind):
    return [one.whole_bytes for one in step.sent if one.kind == kind]


@pytest.mark.parametrize("training", [{}, {"ema_decay": 0.9, "gradient": {"clip_norm": 1.0}}])
def test_shards_on_the_host_are_not_on_the_device(training):
    """What plain FSDP2 has at its peak but the shards: 4 W and 6 A. Between two steps nothing is left."""
    step = traced("fsdp", 4, width=WIDTH, fsdp=OFFLOADED, **training)
    assert peak_without_scalars(step.trace) == 4 * W + 6 * A
    assert kept_bytes(step.trace) <= 512  # a loss
    # To the device a shard for each gather, back each shard of a gradient; neither goes between ranks.
    assert sent(step, "all_gather") == [W] * 6
    assert sent(step, "host_to_device") == [W // 4] * 6
    assert sent(step, "device_to_host") == [W // 4] * 3
    assert sum(one.ring_bytes for one in step.sent if one.whole_bytes > 64) == 9 * W * 3 // 4


@pytest.mark.parametrize(("rank", "rows"), [(0, 16), (62, 8), (63, 0)])
def test_uneven_shards_of_the_host_are_sent_padded_and_come_back_as_they_are(rank, rows):
    """1000 rows between 64: sixteen each to the device, also where there are eight or none."""
    step = traced("fsdp", 64, width=1000, rank=rank, fsdp=OFFLOADED)
    assert sent(step, "host_to_device") == [16 * 1000 * 4] * 6
    assert sent(step, "device_to_host") == [rows * 1000 * 4] * 3


def test_shards_of_the_host_are_cast_on_the_device():
    """In fp32 over the bus, in bf16 between ranks."""
    step = traced("fsdp", 2, width=WIDTH, fsdp={**OFFLOADED, "param_dtype": "bf16", "reduce_dtype": "fp32"})
    assert sent(step, "host_to_device") == [W // 2] * 6
    assert sent(step, "all_gather") == [W // 2] * 6
    assert sent(step, "device_to_host") == [W // 2] * 3


def test_an_offloaded_rank_is_predicted_whole():
    """Parameters and states are gone from the table, and a checkpoint is put together on the host."""
    found = {}
    for offloads in (False, True):
        config = config_of("fsdp", WIDTH, fsdp={"offload_to_cpu": offloads})
        found[offloads] = predict_rank(three_layers(WIDTH), config, setting_of(config, "fp32"), 4, asked=[1])
    assert found[False].kept_bytes - found[True].kept_bytes == pytest.approx(9 * W / 4, abs=1024)
    assert found[True].export_bytes == found[True].kept_bytes
    assert found[True].sent["host_to_device"] == 6 * W // 4
    assert "host_to_device" not in found[False].sent
    assert found[True].ring_bytes == found[False].ring_bytes
    assert [UNTESTED_OFFLOAD in one.untested for one in found.values()] == [False, True]
    # One forward pass of one sample: two gathered weights, and no shards.
    validation = {key: one.setting.validation.allocated_bytes for key, one in found.items()}
    assert validation[False] - validation[True] == pytest.approx(9 * W / 4, abs=1024)


@pytest.mark.parametrize("size", [2, 8])
def test_bf16(size):
    """As in fp32, in the backward pass of the middle layer: its weight and its gradient, the first layer's weight, in
    bf16, and what the last layer scatters, in fp32; shards are in fp32. The input and the target in fp32, the input
    again, two saved activations and two gradients of them in bf16."""
    step = traced("fsdp", size, width=WIDTH, fsdp={"param_dtype": "bf16", "reduce_dtype": "fp32"})
    assert peak_without_scalars(step.trace) == 10 * W // size + 3 * W // 2 + W + 2 * A + 5 * A // 2


def test_gradients_that_are_summed_in_bf16_too():
    """What the last layer scatters is in bf16; its shard is kept in fp32."""
    step = traced("fsdp", 8, width=WIDTH, fsdp={"param_dtype": "bf16"})
    assert sent(step, "reduce_scatter") == [W // 2] * 3
    assert peak_without_scalars(step.trace) == 10 * W // 8 + 4 * W // 2 + 2 * A + 5 * A // 2


def pairs(recomputed):
    return trace_rank(
        three_pairs(recomputed, WIDTH), config_of("fsdp", WIDTH), 8, 4, as_on_cuda=False, validation=False
    )


def test_checkpoints_inside_units_gather_no_more():
    """Recomputed within the backward pass of the unit, whose weights are there: six gathers of a pair, as without.

    In the backward pass of the middle pair, once both of its gradients are there: its weights and gradients, the first
    pair's weights, what the last pair scatters: 8 W; shards 20 W / 4. With and without a checkpoint its own three
    activations are there (its input, the middle, the gradient of that) and the input of the first pair, the target
    and a new gradient; kept is the first pair's middle one.
    """
    kept, recomputed = pairs(False), pairs(True)
    assert sent(recomputed, "all_gather") == sent(kept, "all_gather") == [2 * W] * 6
    assert sent(recomputed, "reduce_scatter") == [2 * W] * 3
    peaks = [peak_without_scalars(step.trace) for step in (recomputed, kept)]
    assert peaks[1] - peaks[0] == A
    assert peaks[0] == 20 * W // 4 + 8 * W + 6 * A


def test_buffers_have_memory_of_their_own_streams():
    """On CUDA: shards of gradients are made on the stream that scatters them, gathers on the one that copies into them;
    what is gathered is handed out, and what is scattered comes from, the stream that computes. The network and its
    average have streams of their own."""
    built, config = three_layers(WIDTH), config_of("fsdp", WIDTH, ema_decay=0.9)
    trace = trace_rank(built, config, 8, 4).trace
    made = {}
    for operator, size in zip(trace.operators, trace.sizes, strict=True):
        _, _, stream = trace.operator_names[operator].partition(ON_STREAM)
        if size >= W // 4:
            made.setdefault(stream, Counter())[int(size)] += 1
    steps = RANK_STEPS
    assert made["reduce_scatter"] == {W // 4: 3 * steps}
    # Six gathers a step, and three of the average in its validation.
    assert made["all_gather_copy_in"] == {W: 6 * steps}
    assert made["all_gather_copy_in 2"] == {W: 3}
    assert set(made) == {"", "reduce_scatter", "all_gather_copy_in", "all_gather_copy_in 2"}
    # What is reserved is that of all streams; also from what a profile keeps.
    again = replace(trace, operator_names=[name.partition(ON_STREAM)[0] for name in trace.operator_names])
    reserved = [replay(one).peak_reserved_bytes for one in (trace, again)]
    assert reserved[0] >= reserved[1] + 3 * W // 4
    order = AffineTrace(trace, trace.sizes, 0 * trace.sizes).order()
    assert ReservedMemory(unpacked(packed(order))).reserved_bytes(1) == reserved[0]
    streams = trace.streams()
    assert (streams > 0).sum() == sum(sum(sizes.values()) for stream, sizes in made.items() if stream)
