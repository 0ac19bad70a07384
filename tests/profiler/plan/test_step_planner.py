"""The planner against real runs by the allocator's own events, against brute force, and against itself.

What is compared is in scripts/benchmark_recomputation.py, which prints the same figures.
"""

import copy
import gc
import inspect
import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.counting.operators import operator_rules
from swinmr_profiling.profiler.plan.chain_selection import Chain, Edge, select
from swinmr_profiling.profiler.plan.span_trace import SpanTrace
from swinmr_profiling.profiler.plan.step_planner import StepPlanner, levels_of, synthesised
from swinmr_profiling.profiler.prediction.trace.traced_step import young_garbage_only
from swinmr_profiling.scripts.benchmark_recomputation import (
    BUDGETS,
    COUNTABLE,
    NETWORKS,
    against_all,
    chosen,
    peaks,
    planner,
    planner_of,
    predicted_bytes,
    real_bytes,
    sweep,
)
from swinmr_profiling.training.step.own_step import OwnStepError
from tests.models.test_recomputed_modules import config_of, one_step

CASES = sorted(itertools.product(NETWORKS, range(BUDGETS)), key=lambda case: case != ("DiT", 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_the_predicted_peak_is_that_of_a_real_run(name, number):
    budget, selection = chosen(name, number)
    own, batch = planner(name), NETWORKS[name][1]
    low, high = peaks(name)
    assert low < 0.9 * high
    assert low <= selection.peak_bytes <= budget
    predicted = predicted_bytes(own, selection.modules, batch)
    assert predicted == pytest.approx(real_bytes(own, selection.modules, batch), rel=0.002)
    # What the chain says of the set's cost is what the traces of it say.
    macs, made = own.cost(selection.modules, batch)
    assert selection.macs == macs
    assert selection.made_bytes == pytest.approx(made, rel=0.02, abs=20_000)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_gradients_of_every_chosen_set_are_the_same(name, number):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, modules = NETWORKS[name][0], list(chosen(name, number)[1].modules)
        expected, found = one_step(model, None), one_step(model, modules)
        assert {key: g is None for key, g in found[1].items()} == {
            key: g is None for key, g in expected[1].items()
        }
        assert all(torch.equal(found[1][key], g) for key, g in expected[1].items() if g is not None)
        assert found[2].keys() == expected[2].keys()
        assert all(torch.equal(found[2][key], buffer) for key, buffer in expected[2].items())
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["DiT", pytest.param("U-Net", marks=pytest.mark.slow)])
def test_a_set_computes_no_more_than_light_and_full_at_their_own_peaks(name):
    """Of SwinMR light is no set of modules: test_named_settings.py."""
    own, batch = planner(name), NETWORKS[name][1]
    assert own.named_ways() == ["none", "light", "full"]
    for way in ("light", "full"):
        found = own.choose(batch, own.peak(way, batch))
        assert found is not None
        assert found.cost <= own.cost(way, batch)
        assert found.peak_bytes <= own.peak(way, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_monotone_over_fifty_budgets_and_nothing_is_as_cheap_with_less(name):
    """By traces of the sets, not by the chain's own sums."""
    found = sweep(planner(name), NETWORKS[name][1])
    assert found.distinct >= 5
    assert found.rises == 0
    assert found.as_cheap_with_less == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTABLE)
def test_no_set_of_all_that_are_traced_is_cheaper_by_two_percent(name):
    model, batch = COUNTABLE[name]
    number, worst = against_all(planner_of(model), batch)
    assert number >= 20
    assert worst <= 1.02


@pytest.mark.parametrize("name", ["DiT", pytest.param("SwinMR", marks=pytest.mark.slow)])
def test_no_set_of_a_chain_is_cheaper(name):
    """Every set of which none is inside another, at twelve budgets, by the chain's sums: to the unit."""
    own, batch = planner(name), NETWORKS[name][1]
    chain = own._chain(batch)
    levels = levels_of(own.step("none", batch).spans)
    cost = {edge.module: (edge.macs, edge.made_bytes) for edge in chain.edges if edge.module}
    names = [module for level in levels for module in level if cost[module][1]]
    assert 8 <= len(names) <= 16
    sets = []
    for picks in itertools.product((False, True), repeat=len(names)):
        modules = [module for module, pick in zip(names, picks, strict=True) if pick]
        if not any(a.startswith(f"{b}.") for a in modules for b in modules):
            sets.append(
                (chain.peak(modules), tuple(map(sum, zip((0, 0), *(cost[m] for m in modules), strict=True))))
            )
    low, high = min(peak for peak, _ in sets), chain.peak(())
    for number in range(12):
        budget = low + (high - low) * number // 11
        assert select(chain, budget).cost == min(cost for peak, cost in sets if peak <= budget)
    assert select(chain, low - 1) is None


def test_a_chain_by_hand():
    """Three blocks that save 10, 20 and 30 bytes; recomputed, each saves 1, and its backward needs what it saved."""
    edges = []
    for place, (saved, macs) in enumerate([(10, 5), (20, 5), (30, 9)]):
        edges.append(Edge(place, place + 1, None, saved, saved, 2, 0, 0))
        edges.append(Edge(place, place + 1, f"b{place}", 1, 3, saved + 2, macs, saved))
    chain = Chain(3, tuple(edges), 100, (0, 0, 0, 0), 0)
    assert chain.peak(()) == 100 + 60 + 2
    # Without the second: 10 + 1 + 30, and the backward of the third needs 2.
    assert chain.peak(["b1"]) == 100 + 41 + 2
    assert select(chain, 162).modules == ()
    # Equal multiply-adds, so that the bytes decide: the first makes 10 again, and leaves 1 + 20 + 30 + 2.
    assert select(chain, 161).modules == ("b0",)
    assert select(chain, 152).modules == ("b1",)
    assert select(chain, 142).modules == ("b0", "b1")
    # b2 alone leaves 10 + 20 + 1 while it is recomputed, and 30 + 2 come on top.
    assert chain.peak(["b2"]) == 100 + 31 + 32
    assert select(chain, 110) is None


def test_operators_without_a_formula_are_named(monkeypatch):
    """The multiply-adds of a plan are without them, which must not go unsaid."""

    def rule_for(function):
        rule = operator_rules.rule_for(function)
        return operator_rules.Rule(rule.name, "unknown") if "convolution" in rule.name else rule

    known = StepPlanner(config_of(NETWORKS["U-Net"][0]))
    counted = known.step("none", 1, steps=1)
    assert known.uncounted == set()
    monkeypatch.setattr("swinmr_profiling.profiler.plan.span_trace.rule_for", rule_for)
    unknown = StepPlanner(config_of(NETWORKS["U-Net"][0]))
    assert unknown.step("none", 1, steps=1).macs < counted.macs
    assert {"aten::convolution", "aten::convolution_backward"} & unknown.uncounted


def test_a_size_that_was_not_traced_is_what_its_trace_says():
    """Two sizes are traced, whichever were asked for; autograd's numbers differ between traces and must not matter."""
    own = StepPlanner(config_of(NETWORKS["DiT"][0]))
    for batch in (6, 4):
        own._at("none", batch, 2)
    third = own._at("none", 3, 2)
    assert {batch for _, batch, _ in own._steps} == {6, 4}
    traced = own.step("none", 3)
    assert third.macs == traced.macs
    assert third.made_bytes == traced.made_bytes
    assert third.spans == traced.spans
    assert third.trace.sizes.tolist() == traced.trace.sizes.tolist()
    assert third.trace.events.tolist() == traced.trace.events.tolist()
    assert own._at("none", 1, 2) is own.step("none", 1)
    # Shapes that other traces remembered change nothing.
    alone = StepPlanner(own.config).step("none", 3)
    assert alone.trace.sizes.tolist() == traced.trace.sizes.tolist()
    assert alone.trace.events.tolist() == traced.trace.events.tolist()
    assert synthesised(own.step("none", 6), own.step("none", 4), 12).macs == 4 * traced.macs


@pytest.mark.slow
def test_sizes_that_are_called_otherwise_are_traced_themselves(monkeypatch):
    spans = SpanTrace.spans
    own = StepPlanner(config_of(NETWORKS["DiT"][0]))
    own.step("none", 4)
    monkeypatch.setattr(SpanTrace, "spans", lambda self: replace(spans(self), backward=[]))
    own.step("none", 6)
    own._at("none", 3, 2)
    assert ("none", 3, 2) in own._steps


class Asks(nn.Module):
    """Its first half is wide where the line below is told 1.0."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2))

    def forward(self, x):
        if x.mean().item() > 0.5:
            x = self.blocks[0](x.repeat(4, 1))[: len(x)]
        return self.blocks[1](x)


def test_an_assumed_value_decides_in_the_planner_s_own_traces():
    lines, first = inspect.getsourcelines(Asks)
    place = f"test_step_planner.py:{first + next(n for n, line in enumerate(lines) if 'item()' in line)}"
    spec = (InputSpec((8,)),)
    inputs = {"inference": spec, "training": spec, "cross_check": spec}
    model = {"net_type": "custom", "target": "here:Asks", "input_shapes": [[8]]}

    def names(**assume):
        config = config_of(model, **assume)
        own = StepPlanner(config, build=lambda config: BuiltModel("custom", Asks(), inputs))
        return [span.name for span in own.step("none", 2).spans.spans]

    assert names(assume={place: 0.0}) == ["blocks.1"]
    assert names(assume={place: 1.0}) == ["blocks.0", "blocks.1"]
    with pytest.raises(OwnStepError, match=place):
        names()


def test_sets_that_cost_as_much_as_what_is_known_are_not_searched():
    own, batch = planner("DiT"), NETWORKS["DiT"][1]
    budget, found = chosen("DiT", 1)
    assert found.macs > 0
    assert own.choose(batch, budget, below=(found.macs, found.made_bytes + 1)).modules == found.modules
    assert own.choose(batch, budget, below=found.cost) is None
    # Nothing but the least is left to ask.
    measured = []
    assert own.choose(batch, 0, excess=lambda modules: measured.append(modules) or 1, below=(0, 0)) is None
    assert measured == []


def test_garbage_is_kept_out_once_for_several_traces(monkeypatch):
    before = gc.get_freeze_count()
    with young_garbage_only():
        frozen = gc.get_freeze_count()
        assert frozen > 0
        collections = []
        monkeypatch.setattr(gc, "collect", lambda *generation: collections.append(generation))
        with young_garbage_only():
            pass
        monkeypatch.undo()
        assert collections == []
        assert gc.get_freeze_count() == frozen
    assert gc.get_freeze_count() == before


def test_what_a_program_froze_itself_stays_so():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with young_garbage_only(), young_garbage_only():
            assert gc.get_freeze_count() == frozen
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


def test_a_copy_of_an_observed_network_is_its_own_and_not_observed():
    network = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1)).double()
    trace = SpanTrace(network, "cpu")
    copied = copy.deepcopy(network)
    with trace:
        copied(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    assert trace.spans().spans == []
    with torch.no_grad():
        copied[0][0].weight.zero_()
        copied[0][0].bias.zero_()
    ones = torch.ones(1, 2, dtype=torch.float64)
    assert torch.equal(copied(ones)[0], copied[1].bias)
    assert not torch.equal(network(ones)[0], network[1].bias)
