"""Complex numbers by our count, and by fvcore and thop, which count one per multiply-add."""

import torch
from torch import nn

from swinmr_profiling.profiler.counting import (
    cross_check_module,
)
from swinmr_profiling.profiler.record.blocks.architecture import DifferencePart
from swinmr_profiling.scripts.counter_cases.case_modules import Call
from tests.profiler.counting.test_complex_numbers import C64, CONV, numbers


class Mixed(nn.Module):
    """Everything that the other counters see differently: convolutions of both kinds, a layer, a bare product."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, dtype=C64)
        self.up = nn.ConvTranspose2d(4, 2, 2, 2, dtype=C64)
        self.linear = nn.Linear(32, 8, dtype=C64)
        self.real = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(self.up(self.conv(x)))
        return self.real(y.abs()), y @ y.mH


UP, LINEAR, PRODUCT = 16 * 16 * 4 * 2 * 4, 2 * 32 * 32 * 8, 2 * 32 * 8 * 32


REAL = 2 * 32 * 8 * 8


def parts_of(check) -> dict[tuple[str, str], int]:
    assert check.agrees
    assert check.ours == 4 * (CONV + UP + LINEAR + PRODUCT) + REAL
    assert sum(part.macs for part in check.parts) == check.difference == check.figure - check.ours
    return {(part.operator, part.why): part.macs for part in check.parts}


def test_fvcore_counts_one_per_complex_product_and_three_in_a_convolution():
    check = cross_check_module(Mixed(), (numbers(1, 2, 16, 16),), "fvcore")
    why = "complex numbers: ours counts four per multiply-add, fvcore one, and three in convolutions"
    assert parts_of(check) == {
        ("aten::_convolution", why): -(CONV + UP),
        ("aten::linear", why): -3 * LINEAR,
        ("aten::matmul", why): -3 * PRODUCT,
    }


def test_what_fvcore_does_not_see_at_all_is_one_part():
    check = cross_check_module(Call(torch.mv), (numbers(3, 4), numbers(4)), "fvcore")
    assert check.parts == [DifferencePart(operator="aten::mv", macs=-4 * 12, why="not counted by fvcore")]


def test_thop_counts_one_per_complex_multiply_add():
    parts = parts_of(cross_check_module(Mixed(), (numbers(1, 2, 16, 16),), "thop"))
    why = "complex numbers: ours counts four per multiply-add, thop one"
    assert parts.pop(("complex numbers in Conv2d", why)) == -3 * CONV
    assert parts.pop(("complex numbers in ConvTranspose2d", why)) == -3 * UP
    assert parts.pop(("complex numbers in Linear", why)) == -3 * LINEAR
    # Its own mistakes, apart: the output's size of the transposed convolution, the product that it does not see.
    assert sorted(parts.values()) == [-4 * PRODUCT, 3 * UP]
