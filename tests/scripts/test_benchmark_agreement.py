"""The comparison with FlopCounterMode on a few networks, and what it does with a difference that nothing explains."""

import pytest
import torch
from torch import nn

from swinmr_profiling.scripts import benchmark_agreement


class Products(nn.Module):
    def forward(self, a, x):
        return a @ x


def compared(capsys, *inputs):
    result = benchmark_agreement.compare("network", lambda: (Products(), inputs, {}))
    return result, capsys.readouterr().out.strip()


def test_equal_counts(capsys):
    assert compared(capsys, torch.empty(3, 4), torch.empty(4, 5)) == (True, "network: 60, equal")


def test_a_known_gap_is_named(capsys):
    # A matrix by a vector, for which FlopCounterMode has no formula: 3 x 4.
    assert compared(capsys, torch.empty(3, 4), torch.empty(4)) == (True, "network: 12, aten::mv +12")


def test_a_gap_that_nothing_explains_is_none_of_the_known(capsys, monkeypatch):
    monkeypatch.setattr(benchmark_agreement, "MISSING_THERE", frozenset())
    assert compared(capsys, torch.empty(3, 4), torch.empty(4)) == (False, "DIFFERS network: 12, aten::mv +12")


def test_what_does_not_run_without_data_is_left_out(capsys):
    def build():
        raise ValueError("wants weights")

    assert benchmark_agreement.compare("network", build) is None


@pytest.mark.slow
def test_a_sample_of_networks_agrees(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmark_agreement.py", "--networks", "7", "--seed", "5"])
    assert benchmark_agreement.main() == 0
    assert "7 networks, 0 with a difference that is not explained" in capsys.readouterr().out
