"""Work that is not a MAC, estimated apart: the rules, by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.profiler.counting import count_forward, count_training_step
from swinmr_profiling.profiler.counting.formulas.attention import flash_attention_3
from swinmr_profiling.profiler.counting.formulas.products import linear_backward, matmul_backward
from swinmr_profiling.profiler.counting.formulas.recurrent import (
    mkldnn_rnn_layer,
    mkldnn_rnn_layer_backward,
)
from swinmr_profiling.scripts.counter_cases.case_modules import Call

COMPLEX = torch.zeros(2, 8, 8, dtype=torch.complex64)


@pytest.mark.parametrize(
    ("name", "function", "inputs", "flops"),
    [
        # One per element of the result, broadcast included.
        ("add", torch.add, (torch.zeros(3, 4), torch.zeros(4)), 3 * 4),
        ("gelu", F.gelu, (torch.zeros(3, 4),), 8 * 12),
        # Mean, variance, difference, scale and shift.
        ("layer norm", nn.LayerNorm(8), (torch.zeros(5, 8),), 5 * 40),
        # With fixed statistics one multiply and one add.
        ("batch norm", nn.BatchNorm2d(4).eval(), (torch.zeros(2, 4, 3, 3),), 2 * 72),
        ("sum", torch.sum, (torch.zeros(10),), 10),
        # A comparison and a product; an exponential, a sum, a division and a sign; a square and a sum, with the mean's.
        ("leaky ReLU", F.leaky_relu, (torch.zeros(3, 4),), 2 * 12),
        ("sigmoid", torch.sigmoid, (torch.zeros(3, 4),), 4 * 12),
        ("variance", torch.var, (torch.zeros(3, 4),), 2 * 12),
        ("squared error", F.mse_loss, (torch.zeros(3, 4), torch.zeros(3, 4)), 4 * 12),
        # What is added, not what it is added to; the rows taken of a table, not the table.
        (
            "index add",
            lambda x, i, s: x.index_add(0, i, s),
            (torch.zeros(9, 4), torch.tensor([0, 2]), torch.zeros(2, 4)),
            8,
        ),
        ("bag of rows", nn.EmbeddingBag(50, 4), (torch.zeros(2, 3, dtype=torch.int64),), 2 * 3 * 4),
        ("means of windows", nn.AdaptiveAvgPool2d(2), (torch.zeros(1, 2, 8, 8),), 2 * 64),
        # Copies pixels: no arithmetic, though torch can also write it as an index in floating point.
        ("nearest", lambda x: F.interpolate(x, scale_factor=2.0), (torch.zeros(1, 2, 4, 4),), 0),
        # Four products and their sums for each of 2 x 8 x 8.
        (
            "bilinear",
            lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
            (torch.zeros(1, 2, 4, 4),),
            8 * 128,
        ),
        # 2, 8 and 16 neighbours' products and sums.
        ("linear", nn.Upsample(scale_factor=2.0, mode="linear"), (torch.zeros(1, 2, 4),), 4 * 16),
        (
            "trilinear",
            nn.Upsample(scale_factor=2.0, mode="trilinear"),
            (torch.zeros(1, 1, 2, 2, 2),),
            16 * 64,
        ),
        ("bicubic", nn.Upsample(scale_factor=2.0, mode="bicubic"), (torch.zeros(1, 2, 4, 4),), 32 * 128),
        # 4 x 4 windows of 3 x 3 in 2 channels.
        ("max pool", nn.MaxPool2d(3, 2), (torch.zeros(1, 2, 9, 9),), 2 * 16 * 9),
        # 10 pairs of 5 rows, 3 operations for each of 8 numbers.
        ("distances of pairs", torch.pdist, (torch.zeros(5, 8),), 10 * 8 * 3),
        # 5 N log2 N, N = 64, twice; half for a real side.
        ("FFT", torch.fft.fft2, (COMPLEX,), 2 * 5 * 64 * 6),
        ("real FFT", torch.fft.rfft2, (torch.zeros(2, 8, 8),), 5 * 64 * 6),
        ("inverse real FFT", torch.fft.irfft2, (COMPLEX[..., :5],), 5 * 64 * 6),
        ("reshape", lambda x: x.reshape(-1, 2).transpose(0, 1), (torch.zeros(3, 4),), 0),
    ],
)
def test_elementwise_rules(name, function, inputs, flops):
    report = count_forward(Call(function), inputs)
    assert report.elementwise_flops == flops
    assert report.macs == report.softmax_macs == 0


def test_the_backward_of_a_normalisation_is_twice_its_forward():
    """5 and 10 for each of 5 x 8 numbers; their mean sums each, and its gradient divides for each."""
    report = count_training_step(lambda m, x: m(x).mean().backward(), nn.LayerNorm(8), (torch.zeros(5, 8),))
    assert report.elementwise_flops == (5 + 10 + 1 + 1) * 5 * 8


def test_one_layer_of_an_lstm_in_onednn_by_hand():
    """T B (numel(W_ih) + numel(W_hh)), and twice that backward: T = 5, B = 3, 6 numbers in and 8 hidden, 4 gates."""
    x, weights = torch.zeros(5, 3, 6), (torch.zeros(32, 6), torch.zeros(32, 8))
    assert mkldnn_rnn_layer(None, x, *weights) == 5 * 3 * 32 * (6 + 8)
    assert mkldnn_rnn_layer_backward(None, x, *weights) == 2 * 5 * 3 * 32 * (6 + 8)


def test_softmax_is_two_multiply_adds_per_element():
    report = count_forward(nn.Softmax(-1), (torch.zeros(5, 8),))
    assert (report.softmax_macs, report.elementwise_flops, report.macs) == (2 * 5 * 8, 0, 0)


class Attention(nn.Module):
    def __init__(self, real: bool):
        super().__init__()
        self.real = real

    def forward(self, q, k, v):
        # Reading a value keeps the count off meta, on the fused kernel.
        assert not self.real or q.sum().item() == 0
        return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("real", [False, True], ids=["written out on meta", "fused on the CPU"])
def test_the_softmax_inside_attention_counts_fused_or_not(real):
    inputs = (torch.zeros(2, 4, 10, 16), torch.zeros(2, 4, 7, 16), torch.zeros(2, 4, 7, 16))
    report = count_forward(Attention(real), inputs)
    assert report.counted_on == ("cpu" if real else "meta")
    assert report.softmax_macs == 2 * (2 * 4 * 10 * 7)


@pytest.mark.parametrize(("mask", "products"), [((True, False), 1), ((False, True), 1), ((True, True), 2)])
def test_products_of_a_backward_operator_are_of_the_gradients_asked_for(mask, products):
    """Each is of the forward's size: 3 x 5 times 5 x 4."""
    grad, a, b = torch.zeros(3, 4), torch.zeros(3, 5), torch.zeros(5, 4)
    assert matmul_backward(None, grad, a, b, mask) == products * 3 * 5 * 4
    assert linear_backward(None, a, grad, b.T, (*mask, True)) == products * 3 * 5 * 4


def test_flash_attention_3_is_counted_without_a_cache_that_it_fills():
    """Scores and values: 2 B Nq Nk H d; how much of a cache is filled is a value."""
    q, k = torch.zeros(2, 5, 3, 8), torch.zeros(2, 7, 3, 8)
    nothing = [None] * 5  # new values, the queries' values, the result, lengths
    assert flash_attention_3(None, q, k, k, None, *nothing) == 2 * (2 * 5 * 7 * 3 * 8)
    assert flash_attention_3(None, q, k, k, k, k, *nothing[1:]) is None
