"""Random graphs of forty kinds of operators: the counter and a second one of the tests say the same, to the unit."""

import random

import pytest
import torch

from swinmr_profiling.profiler.counting import count_forward
from tests.random_graphs import Runs, draw_graph, draw_operator
from tests.second_counter import KINDS, Operator

COMPLEX = torch.complex64
CONV = {"batch": 1, "groups": 1, "stride": 1, "padding": 0, "dilation": 1}
ATTENTION = {"batch": 2, "heads": 4, "queries": 10, "keys": 7, "width": 16, "values": 16}
TOKENS = {"batch": 2, "tokens": 9, "heads": 2, "width": 16}
RECURRENT = {"steps": 3, "batch": 7, "into": 16, "hidden": 24, "layers": 1, "both_ways": False}
MATRICES = {"rows": 3, "inner": 4, "columns": 5}
BATCHES = {"batch": 2, **MATRICES}

# Operators and the MACs of each, worked out by hand.
BY_HAND = [
    (Operator("mm", MATRICES), 60),
    (Operator("mm", {"rows": 1, "inner": 1, "columns": 1}), 1),
    (Operator("mm", MATRICES, torch.int64), 60),
    (Operator("mm", MATRICES, COMPLEX), 240),
    (Operator("addmm", MATRICES), 60),
    (Operator("addmm", {"rows": 2, "inner": 10, "columns": 3}), 60),
    (Operator("bmm", BATCHES), 120),
    (Operator("bmm", BATCHES, COMPLEX), 480),
    (Operator("baddbmm", BATCHES), 120),
    # 3 x 2 products of 4 x 5 x 6.
    (Operator("matmul, broadcast", {"outer": 3, "batch": 2, "rows": 4, "inner": 5, "columns": 6}), 720),
    (Operator("matmul, broadcast", {"outer": 1, "batch": 1, "rows": 1, "inner": 9, "columns": 1}), 9),
    (Operator("mv", {"rows": 3, "inner": 4}), 12),
    (Operator("mv", {"rows": 3, "inner": 4}, COMPLEX), 48),
    (Operator("dot", {"inner": 7}), 7),
    (Operator("dot", {"inner": 7}, COMPLEX), 28),
    # 2 x 3 x 6 results of 4 x 5.
    (Operator("einsum", {"batch": 2, "a": 3, "b": 4, "c": 5, "d": 6}), 720),
    (Operator("tensordot", {"a": 2, "b": 3, "c": 4, "d": 5}), 120),
    # Nothing is summed: outer products.
    (Operator("tensordot", {"a": 2, "b": 1, "c": 1, "d": 5}), 0),
    (Operator("einsum", {"batch": 2, "a": 3, "b": 1, "c": 1, "d": 6}), 0),
    (Operator("linear", {"batch": 2, "tokens": 5, "into": 16, "out": 8}), 1280),
    (Operator("linear", {"batch": 2, "tokens": 5, "into": 16, "out": 8}, COMPLEX), 5120),
    (Operator("shared layer", {"rows": 5, "width": 8}), 640),
    (Operator("checkpointed layer", {"rows": 5, "into": 16, "out": 8}), 640),
    # 3 x 6 results of 4 x 5 + 5.
    (Operator("bilinear", {"rows": 3, "a": 4, "b": 5, "out": 6}), 450),
    # 18 places x 8 x 4 x 3.
    (Operator("conv1d", {**CONV, "into": 4, "out": 8, "kernel": (3,), "image": (20,)}), 1728),
    # Padding brings 20 places back.
    (Operator("conv1d", {**CONV, "padding": 1, "into": 4, "out": 8, "kernel": (3,), "image": (20,)}), 1920),
    # 16 x 16 places x 16 x 8 x 9.
    (Operator("conv2d", {**CONV, "padding": 1, "into": 8, "out": 16, "kernel": (3, 3), "image": (16, 16)}), 294_912),
    # Stride 2: 8 x 8 places.
    (
        Operator("conv2d", {**CONV, "stride": 2, "padding": 1, "into": 8, "out": 16, "kernel": (3, 3),
                            "image": (16, 16)}),
        73_728,
    ),
    # Dilation 2 reaches 5: 12 x 12 places.
    (
        Operator("conv2d", {**CONV, "dilation": 2, "into": 8, "out": 16, "kernel": (3, 3), "image": (16, 16)}),
        165_888,
    ),
    # Each of 4 groups reads 2 of 8 channels.
    (
        Operator("conv2d", {**CONV, "groups": 4, "padding": 1, "into": 8, "out": 16, "kernel": (3, 3),
                            "image": (16, 16)}),
        73_728,
    ),
    (Operator("conv2d", {**CONV, "batch": 3, "into": 2, "out": 5, "kernel": (1, 2), "image": (4, 4)}), 720),
    # 6 x 6 x 6 places x 8 x 4 x 27.
    (Operator("conv3d", {**CONV, "into": 4, "out": 8, "kernel": (3, 3, 3), "image": (8, 8, 8)}), 186_624),
    (Operator("complex conv1d", {**CONV, "into": 4, "out": 8, "kernel": (3,), "image": (20,)}, COMPLEX), 6912),
    (
        Operator("complex conv2d", {**CONV, "padding": 1, "into": 2, "out": 4, "kernel": (3, 3), "image": (16, 16)},
                 COMPLEX),
        73_728,
    ),
    (
        Operator("conv of integers", {**CONV, "into": 2, "out": 4, "kernel": (3, 3), "image": (8, 8)}, torch.int64),
        2592,
    ),
    # 10 places that go in x 4 x 8 x 4.
    (Operator("transposed conv1d", {**CONV, "batch": 2, "into": 4, "out": 8, "kernel": (4,), "image": (10,)}), 2560),
    (Operator("transposed conv2d", {**CONV, "stride": 2, "into": 3, "out": 1, "kernel": (2, 2), "image": (2, 2)}), 48),
    (
        Operator("transposed conv2d", {**CONV, "groups": 4, "into": 16, "out": 32, "kernel": (4, 4), "image": (8, 8)}),
        131_072,
    ),
    (
        Operator("transposed conv3d", {**CONV, "into": 4, "out": 8, "kernel": (2, 2, 2), "image": (4, 4, 4)}),
        16_384,
    ),
    (Operator("attention", ATTENTION), 17_920),
    # 7 keys of 16 and 7 values of 24.
    (Operator("attention", {**ATTENTION, "values": 24}), 22_400),
    (Operator("attention, causal", ATTENTION), 25_600),
    (Operator("attention, grouped", {**ATTENTION, "heads": 2, "share": 4}), 35_840),
    (Operator("attention, written out", ATTENTION), 17_920),
    # 18 x 4 x 256, and 2 x 2 x 81 x 16.
    (Operator("self-attention", TOKENS), 23_616),
    # And 18 x 2 x 16 x 32.
    (Operator("encoder layer", {**TOKENS, "wide": 32}), 42_048),
    (Operator("rnn", RECURRENT), 20_160),
    (Operator("gru", RECURRENT), 60_480),
    (Operator("lstm", RECURRENT), 80_640),
    (Operator("lstm", {**RECURRENT, "both_ways": True}), 161_280),
    # The second layer reads 24: 80,640 and 21 x 96 x 48.
    (Operator("lstm", {**RECURRENT, "layers": 2}), 177_408),
    (Operator("lstm cell", {"batch": 7, "into": 16, "hidden": 24}), 26_880),
    (Operator("distances", {"batch": 2, "rows": 30, "others": 40, "width": 4}), 9600),
    (Operator("distances", {"batch": 2, "rows": 3, "others": 5, "width": 4}), 0),
    (Operator("grid", {"batch": 1, "height": 256, "width": 256}), 393_216),
    (Operator("outer", {"a": 3, "b": 4}), 0),
    (Operator("activation", {"batch": 1, "channels": 2, "height": 3, "width": 4}), 0),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "macs"), BY_HAND, ids=lambda value: getattr(value, "kind", None))
def test_the_second_counter_says_what_was_worked_out_by_hand(operator, macs):
    assert operator.macs() == macs


def test_there_are_enough_kinds_and_hand_values():
    assert len(KINDS) >= 30
    assert len(BY_HAND) >= 50


def count(graph, rng):
    module = Runs(graph, rng).eval()
    report = count_forward(module, (torch.rand(3, 5), torch.rand(2, 3, 4, 4)))
    assert report.counted_on == "meta", report.note
    assert report.uncounted_operators == {}
    assert report.by_module["macs"] == report.macs
    return report.macs


def compare(seeds):
    """How many graphs differ, with the first that do."""
    differing = []
    for seed in seeds:
        rng = random.Random(seed)
        graph = draw_graph(rng)
        ours = count(graph, rng)
        if ours != graph.macs():
            differing.append((seed, ours, graph.macs(), graph))
    return differing


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone(kind):
    rng = random.Random(kind)
    for _ in range(4):
        operator = draw_operator(rng, kind)
        module = KINDS[kind].build(dtype=operator.dtype, **operator.sizes).eval()
        inputs = tuple(torch.ones(shape).to(operator.dtype) for shape in operator.inputs())
        assert count_forward(module, inputs).macs == operator.macs(), operator


@pytest.mark.slow
def test_random_graphs():
    assert compare(range(200)) == []


@pytest.mark.slow
def test_two_thousand_random_graphs():
    seeds = range(200, 2200)
    assert compare(seeds) == []
    drawn = set().union(*(draw_graph(random.Random(seed)).kinds() for seed in seeds))
    assert drawn == set(KINDS)
