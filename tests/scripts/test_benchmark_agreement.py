"""The comparison with FlopCounterMode on a few networks, and what it does with a difference that nothing explains."""

import json

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.scripts import benchmark_agreement
from swinmr_profiling.scripts.benchmark_agreement import MISSING_THERE, compare, is_explained, line_of
from swinmr_profiling.scripts.counter_cases.operators import CASES


class Products(nn.Module):
    def forward(self, a, x):
        return a @ x


def compared(*inputs):
    return compare("network", lambda: (Products(), [(inputs, {})]))


def test_equal_counts():
    record = compared(torch.empty(3, 4), torch.empty(4, 5))
    assert (record["macs"], record["flop_counter"], record["gaps"], record["counted_on"]) == (
        60,
        60,
        {},
        "meta",
    )
    assert line_of(record) == "network: 60, equal"


def test_a_known_gap_is_named():
    # A matrix by a vector, for which FlopCounterMode has no formula: 3 x 4.
    record = compared(torch.empty(3, 4), torch.empty(4))
    assert is_explained(record)
    assert line_of(record) == "network: 12, aten::mv +12"


@pytest.mark.parametrize(
    "change",
    [
        {"gaps": {"aten::mm": 12}},  # an operator that it knows
        {"also_there": ["aten::mv"]},  # in part
        {"flop_counter": 1},  # not all of the difference
        {"uncounted": {"own::product": 1}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_nothing_explains_differs(change):
    record = {**compared(torch.empty(3, 4), torch.empty(4)), **change}
    assert not is_explained(record)
    assert line_of(record).startswith("DIFFERS network: 12, ")


def test_every_gap_has_a_case_derived_by_hand_in_which_it_is_counted():
    cases = {case.name: case for case in CASES}
    for operator, name in MISSING_THERE.items():
        # Without data and for real: the one takes other operators than the other.
        module, inputs = cases[name].build()
        without_data = count_forward(module, inputs)
        assert without_data.macs == cases[name].macs
        tracker = ModuleTracker(module)
        with torch.no_grad(), tracker, CountingMode(tracker) as counter:
            module(*inputs)
        assert cases[name].macs in (
            without_data.by_operator.get(operator),
            counter.tallies.by_operator[operator],
        ), operator


def test_a_network_that_reads_values_runs_for_real():
    class Reads(Products):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 5)

        def forward(self, x):
            return self.layer(x) if x.sum().item() == 0 else x

    record = compare("network", lambda: (Reads(), [((torch.empty(3, 4),), {})]))
    assert (record["macs"], record["flop_counter"], record["counted_on"]) == (60, 60, "cpu")


def test_what_does_not_run_is_left_out_with_the_reason():
    def build():
        raise ValueError("wants weights")

    assert compare("network", build)["left_out"] == "not built: ValueError: wants weights"
    record = compare("network", lambda: (Products(), [((torch.empty(3, 4), torch.empty(5)), {})]))
    assert record["left_out"].startswith("RuntimeError: ")
    assert line_of(record).startswith("left out network: RuntimeError")


def test_records_are_resumed_and_written_as_a_page(monkeypatch, capsys, tmp_path):
    def drawn(seed):
        yield "timm first", lambda: (Products(), [((torch.empty(3, 4), torch.empty(4, 5)), {})])
        yield "timm second", lambda: (Products(), [((torch.empty(3, 4), torch.empty(4)), {})])
        yield "timm third", lambda: (Products(), [((torch.empty(3, 4), torch.empty(5)), {})])

    def run(*options):
        monkeypatch.setattr("sys.argv", ["benchmark_agreement.py", "--resume", str(records), *options])
        assert benchmark_agreement.main() == 0
        return capsys.readouterr().out

    monkeypatch.setattr(benchmark_agreement, "networks", drawn)
    records, page = tmp_path / "records.jsonl", tmp_path / "page.md"
    assert "1 networks, 0 with" in run("--networks", "1")
    said = run("--write", str(page))
    assert "timm first" not in said
    assert "2 networks, 0 with a difference that is not explained; 1 left out" in said
    assert [json.loads(line)["network"] for line in records.read_text().splitlines()] == [
        "timm first",
        "timm second",
        "timm third",
    ]
    text = page.read_text()
    assert "| `aten::mv` | 1 | 12 | mv |" in text
    assert "| timm first | 60 | 60 | none | meta |" in text
    assert "| timm third | RuntimeError" in text


@pytest.mark.slow
def test_a_sample_of_networks_agrees(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmark_agreement.py", "--networks", "7", "--seed", "5"])
    assert benchmark_agreement.main() == 0
    assert "7 networks, 0 with a difference that is not explained" in capsys.readouterr().out
