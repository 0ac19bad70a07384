"""Latency and memory of each module: which module had which time, by a clock that the test moves."""

import pytest
import torch
from torch import nn

from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.measure import module_costs
from swinmr_profiling.profiler.measure.module_costs import (
    ModuleRun,
    ModuleWatch,
    measure_modules,
    module_costs_block,
)

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a module says so."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(module_costs.time, "perf_counter", lambda: Clock.now)
    return Clock


class Takes(nn.Module):
    """Takes some milliseconds itself, around the modules in it."""

    def __init__(self, clock, milliseconds, **children):
        super().__init__()
        self.clock, self.milliseconds = clock, milliseconds
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, x):
        self.clock.now += self.milliseconds / 1000
        for child in self.children():
            x = child(x)
        return x


def watched(network, *inputs):
    watch = ModuleWatch(network, CPU)
    with watch.watching():
        network(*inputs)
    return watch.runs()


def test_a_module_has_its_own_time_and_that_of_the_modules_in_it(clock):
    network = Takes(clock, 1, a=Takes(clock, 2), b=Takes(clock, 4, inner=Takes(clock, 8)))
    runs = watched(network, torch.ones(2, 3))
    assert {path: round(run.total_ms) for path, run in runs.items()} == {
        "": 15,
        "a": 2,
        "b": 12,
        "b.inner": 8,
    }
    assert {path: round(run.own_ms) for path, run in runs.items()} == {"": 1, "a": 2, "b": 4, "b.inner": 8}
    assert sum(run.own_ms for run in runs.values()) == pytest.approx(runs[""].total_ms)
    assert all(run.output_bytes == 2 * 3 * 4 for run in runs.values())
    assert all(run.peak_bytes is None for run in runs.values())


def test_calls_add_up_and_a_shared_module_stands_where_it_was_called(clock):
    shared = Takes(clock, 2)
    network = Takes(clock, 1, first=Takes(clock, 0, layer=shared), second=Takes(clock, 0, layer=shared))
    runs = watched(network, torch.ones(1))
    assert (runs["first.layer"].calls, round(runs["first.layer"].total_ms)) == (1, 2)
    assert (runs["second.layer"].calls, round(runs["second.layer"].total_ms)) == (1, 2)

    class Twice(Takes):
        def forward(self, x):
            return super().forward(super().forward(x))

    runs = watched(Twice(clock, 1, layer=Takes(clock, 3)), torch.ones(1))
    assert (runs["layer"].calls, round(runs["layer"].total_ms)) == (2, 6)


def test_modules_of_others_are_left_out(clock):
    stranger = Takes(clock, 5)
    runs = watched(Takes(clock, 1, call=Takes(clock, 0)), torch.ones(1))
    assert set(runs) == {"", "call"}

    class Asks(nn.Module):
        def forward(self, x):
            return stranger(x)

    assert set(watched(Asks(), torch.ones(1))) == {""}


def test_the_block_has_medians_shares_and_multiply_adds_of_a_second():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    built = BuiltModel("custom", network, {"inference": (InputSpec((4,)),)})
    seen = [
        {
            "": ModuleRun(1, total, total - 3, 64),
            "1": ModuleRun(1, 1.0, 1.0, 64),
            "0": ModuleRun(1, 2.0, 2.0, 64, 128),
        }
        for total in (4.0, 8.0, 5.0)
    ]
    costs = module_costs_block(built, 4, [4.0, 3.0, 5.0], [5.0, 4.0, 8.0], seen, {"": 16, "0": 16})
    block = costs.model_dump(by_alias=True)
    assert [module["path"] for module in block["modules"]] == ["", "0", "1"]
    assert (block["plain_ms"], block["hooked_ms"]) == (4.0, 5.0)
    assert block["hook_share"] == pytest.approx(0.2)
    root, linear, relu = block["modules"]
    assert (root["latency_ms"], root["own_ms"], root["share"]) == (5.0, 2.0, 1.0)
    assert (linear["share"], linear["peak_bytes"]) == (0.4, 128)
    # 4 samples of 16 multiply-adds in 2 ms.
    assert linear["macs_per_second"] == 4 * 16 / 0.002
    assert relu["macs_per_second"] is None
    assert block["input_shape"] == [4, 4]
    assert linear["class"] == "Linear"


def test_a_network_is_left_as_it_was():
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    built = BuiltModel("custom", network, {"inference": (InputSpec((4,)),)})
    before = {name: value.clone() for name, value in network.state_dict().items()}
    block = measure_modules(built, CPU, torch.float32, 2).model_dump()
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network._forward_hooks
    assert [module["path"] for module in block["modules"]] == ["", "0", "1"]
    assert block["num_runs"] >= 3
    assert all(module["latency_ms"] >= module["own_ms"] >= 0 for module in block["modules"])


def test_a_forward_that_takes_gradients_runs_with_them():
    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.layer(x).square().sum(), x)[0]

    built = BuiltModel("custom", Score(), {"inference": (InputSpec((4,)),)})
    block = measure_modules(built, CPU, torch.float32).model_dump()
    assert [module["path"] for module in block["modules"]] == ["", "layer"]
