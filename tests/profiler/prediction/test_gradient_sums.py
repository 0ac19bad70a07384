"""Sums of gradients under a trace are what the autograd engine makes of them when nobody looks on."""

import torch
from torch import nn

from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace

ROWS, WIDTH = 64, 256
SIZE = ROWS * WIDTH * 4


def names_in_backward(loss):
    """Names of the operators of a backward pass, as torch's profiler sees them."""
    with torch.autograd.profiler.profile() as profile:
        loss.backward()
    return [event.name for event in profile.function_events]


def residual(x):
    """The product makes the gradient of the sum a tensor of its own; of .sum() it would be one number, expanded."""
    return (x + torch.tanh(x)).mm(torch.ones(WIDTH, WIDTH)).sum()


def two_uses_of_a_weight(x, layer):
    return layer(layer(x)).sum()


def hidden():
    return torch.ones(ROWS, WIDTH, requires_grad=True) * 2


def test_the_engine_sums_a_residual_in_place_and_so_does_a_trace():
    untraced = names_in_backward(residual(hidden()))
    assert "aten::add_" in untraced
    assert "aten::add" not in untraced
    with StorageTrace("cpu") as trace:
        loss = residual(hidden())
        before = len(trace._made)
        loss.backward()
        made = [trace._made[number][0] for number in range(before, len(trace._made))]
    # The gradients of the product, of tanh, and of `* 2`: no fourth for the sum.
    assert made.count(SIZE) == 3


def test_gradients_of_a_weight_used_twice_are_summed_into_a_third_tensor():
    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    untraced = names_in_backward(two_uses_of_a_weight(torch.ones(ROWS, WIDTH), layer))
    assert untraced.count("aten::add") == 1
    assert "aten::add_" not in untraced
    layer.weight.grad = None
    with StorageTrace("cpu") as trace:
        loss = two_uses_of_a_weight(torch.ones(ROWS, WIDTH), layer)
        before = len(trace._made)
        loss.backward()
        made = [trace._made[number][0] for number in range(before, len(trace._made))]
    assert made.count(WIDTH * WIDTH * 4) == 3


def test_a_gradient_that_somebody_holds_is_not_written_over():
    kept = []
    with StorageTrace("cpu"):
        x = hidden()
        total = x + torch.tanh(x)
        total.register_hook(kept.append)
        total.mm(torch.ones(WIDTH, WIDTH)).sum().backward()
    # d sum(total @ ones) / d total = WIDTH, everywhere.
    assert torch.equal(kept[0], torch.full((ROWS, WIDTH), float(WIDTH)))
