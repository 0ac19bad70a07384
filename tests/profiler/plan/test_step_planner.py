"""The planner against real runs by the allocator's own events, against brute force, and against itself."""

import gc
import itertools
from functools import cache

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting.operators import operator_rules
from swinmr_profiling.profiler.measure.example_data import ExampleData
from swinmr_profiling.profiler.plan.chain_selection import Chain, Edge, peak_grain, select
from swinmr_profiling.profiler.plan.step_planner import StepPlanner, levels_of
from swinmr_profiling.profiler.prediction.trace.traced_step import copy_with_data
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import build_settings, build_state, training_step
from tests.models.test_recomputed_modules import config_of, one_step

NETWORKS = {
    "dit": {"net_type": "dit_denoiser", "img_size": 64, "patch_size": 4, "embed_dim": 32, "depth": 3, "num_heads": 2},
    "swinmr": {"net_type": "swinmr", "img_size": 48, "depths": [2, 2], "num_heads": [2, 2], "embed_dim": 24},
    "unet": {"net_type": "unet_denoiser", "img_size": 48, "base_channels": 16, "channel_multipliers": [1, 2],
             "num_res_blocks": 1, "attention_resolutions": [24], "num_groups": 4, "head_channels": 16},
    "vit": {"net_type": "timm", "name": "vit_tiny_patch16_224", "img_size": 128, "num_classes": 4,
            "kwargs": {"depth": 3, "embed_dim": 48, "num_heads": 3}},
    "resnet": {"net_type": "timm", "name": "resnet10t", "img_size": 64, "num_classes": 4},
}  # fmt: skip
BATCH = {"swinmr": 4, "unet": 8, "dit": 16, "vit": 32, "resnet": 32}
BUDGETS = range(5)


@cache
def planner(name):
    def build(config):
        built = build_model(config)
        if name == "swinmr":
            built.module.attention = "matmul"  # the CPU would take another way than the meta device
        return built

    config = config_of(NETWORKS[name])
    # Without data torch takes the plain attention, on a CPU its flash attention.
    system = config.system.model_copy(update={"attention": "math"})
    return StepPlanner(config.model_copy(update={"system": system}), as_on_cuda=False, build=build)


@cache
def chosen(name, number):
    """The selection for the number-th of five budgets, from the least peak there is to just below that of none."""
    own, batch = planner(name), BATCH[name]
    low, high = own.least(batch).peak_bytes, own.peak("none", batch)
    assert low < 0.9 * high
    return own.choose(batch, low + (high - 1 - low) * number // max(BUDGETS)), low


def real_peak_bytes(name, modules):
    """Most bytes that PyTorch's CPU allocator had given out while a state was built and two steps ran."""
    own = planner(name)
    config = own.in_way(modules)
    built, settings = own.build(config), build_settings(config, "cpu")
    with attention_kernels(config.system.attention):
        loss = copy_with_data(build_loss(config, for_prediction=True))
        batches = ExampleData(built, config, loss, torch.device("cpu")).micro_batches(BATCH[name])
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            state = build_state(config, copy_with_data(built.module).train(), loss, total_steps=2)
            for _ in range(2):
                training_step(state, settings, batches)
                gc.collect()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


# Not the ResNet: real runs on a CPU hold 1.8 to 3.4 % more than its trace, buffers of its convolutions presumably.
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "number"), list(itertools.product([name for name in NETWORKS if name != "resnet"], BUDGETS))
)
def test_the_predicted_peak_is_that_of_a_real_run(name, number):
    selection, low = chosen(name, number)
    assert selection is not None
    trace = planner(name).step(selection.modules, BATCH[name]).trace
    predicted = int(trace.live_bytes()[trace.step_starts[0] :].max())
    assert predicted == pytest.approx(real_peak_bytes(name, selection.modules), rel=0.002)
    assert low <= selection.peak_bytes
    # What the chain says of the set's cost is what the traces of it say.
    macs, made = planner(name).cost(selection.modules, BATCH[name])
    assert selection.macs == macs
    assert selection.made_bytes == pytest.approx(made, rel=0.02, abs=20_000)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "number"), list(itertools.product(NETWORKS, (0, 2, 4))))
def test_gradients_of_every_chosen_set_are_the_same(name, number):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        modules = list(chosen(name, number)[0].modules)
        expected, found = one_step(NETWORKS[name], None), one_step(NETWORKS[name], modules)
        assert all(torch.equal(found[1][key], g) for key, g in expected[1].items() if g is not None)
        assert all(torch.equal(found[2][key], buffer) for key, buffer in expected[2].items())
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", [pytest.param("swinmr", marks=pytest.mark.slow), "dit"])
def test_monotone_in_the_budget_and_nothing_is_as_cheap_with_less(name):
    chain = planner(name)._chain(BATCH[name])
    high = chain.peak(())
    before = None
    for number in range(50):
        found = select(chain, high - number * (high - chain.elsewhere) // 49)
        if found is None:
            break
        assert found.peak_bytes == chain.peak(found.modules)
        if before is not None:
            assert found.peak_bytes <= before.peak_bytes
            assert found.cost >= before.cost
        less = select(chain, found.peak_bytes - peak_grain(found.peak_bytes))
        assert less is None or less.cost > found.cost
        before = found
    assert number > 10


def test_light_and_full_are_not_beaten_by_themselves():
    """At full's own peak the chosen set computes at most as much again."""
    own, batch = planner("dit"), BATCH["dit"]
    found = own.choose(batch, own.peak("full", batch))
    assert found is not None
    assert found.cost <= own.cost("full", batch)
    assert found.peak_bytes <= own.peak("full", batch)


@pytest.mark.parametrize("name", ["dit", pytest.param("swinmr", marks=pytest.mark.slow)])
def test_no_set_of_all_is_cheaper(name):
    """Every set of which none is inside another, at twelve budgets."""
    own = planner(name)
    chain = own._chain(BATCH[name])
    levels = levels_of(own.step("none", BATCH[name]).spans)
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

    known = StepPlanner(config_of(NETWORKS["unet"]))
    counted = known.step("none", 1, steps=1)
    assert known.uncounted == set()
    monkeypatch.setattr("swinmr_profiling.profiler.plan.span_trace.rule_for", rule_for)
    planner = StepPlanner(config_of(NETWORKS["unet"]))
    assert planner.step("none", 1, steps=1).macs < counted.macs
    assert {"aten::convolution", "aten::convolution_backward"} & planner.uncounted
