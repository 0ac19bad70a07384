"""Every hand-derived operator case, on the meta copy and on real tensors, in every gradient mode."""

import pytest
import torch

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.scripts.counter_cases.foreign_operators import FOREIGN
from swinmr_profiling.scripts.counter_cases.operators import CASES

ALL_CASES = (*CASES, *(case for cases in FOREIGN.values() for case in cases))
MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def test_there_are_enough_cases_with_different_names():
    assert len(CASES) >= 90
    assert len({case.name for case in ALL_CASES}) == len(ALL_CASES)
    assert FOREIGN.keys() == {"complex", "integer", "threaded", "scripted"}


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_the_count_is_exact_and_complete(case):
    module, inputs = case.build()
    report = count_forward(module, inputs)
    assert report.macs == case.macs
    assert report.flops == 2 * case.macs
    assert report.uncounted_operators == {}
    assert sum(report.by_kind.values()) == sum(report.by_operator.values()) == report.macs
    assert report.by_module["macs"] == report.macs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_real_tensors_give_the_same_as_meta(case, mode):
    # The CPU takes other operators than meta: fused attention, mkldnn's recurrent layers, the encoder's fast path.
    module, inputs = case.build()
    tracker = ModuleTracker(module)
    with MODES[mode](), tracker, CountingMode(tracker) as counter:
        module(*inputs)
    assert sum(counter.tallies.by_kind.values()) == case.macs
    assert not counter.tallies.uncounted


def test_most_cases_run_on_meta():
    # Those that cannot: quantized weights, out= of another device, a branch that reads a value.
    on_cpu = [c.name for c in CASES if count_forward(*c.build()).counted_on == "cpu"]
    assert on_cpu == [
        "Linear, quantized dynamically",
        "mm with out=",
        "branch on a value",
    ]
