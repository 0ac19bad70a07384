"""KAIR's initialisers: their distributions by hand, the gain, and the layers they touch."""

import math

import pytest
import torch
from torch import nn

from swinmr_profiling.models.initialisation import initialise

GAIN = 0.2
# 256 inputs and 128 outputs, and a convolution of 16 x 3 x 3 = 144 inputs and 32 x 3 x 3 = 288 outputs.
LINEAR_FAN = (256, 128)
CONV_FAN = (144, 288)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 128)
        self.conv = nn.Conv2d(16, 32, 3)
        self.bare = nn.Linear(8, 8, bias=False)
        self.norm = nn.LayerNorm(8)
        self.table = nn.Parameter(torch.full((4,), 5.0))


def initialised(init_type, gain=GAIN):
    torch.manual_seed(0)
    module = Net()
    initialise(module, init_type, gain)
    return module


# Standard deviations of the weights, from (fan in, fan out), before the gain. A uniform of half width a has
# a / sqrt(3).
DEVIATIONS = {
    "normal": lambda fan_in, fan_out: 0.1,
    "uniform": lambda fan_in, fan_out: 0.2 / math.sqrt(3),
    "xavier_normal": lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)),
    "xavier_uniform": lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)),
    "kaiming_normal": lambda fan_in, fan_out: math.sqrt(2 / fan_in),
    "kaiming_uniform": lambda fan_in, fan_out: math.sqrt(2 / fan_in),
}


@pytest.mark.parametrize("init_type", DEVIATIONS)
@pytest.mark.parametrize("gain", [1.0, GAIN])
def test_weights_have_the_deviation_of_their_distribution_times_the_gain(init_type, gain):
    module = initialised(init_type, gain)
    for layer, fans in ((module.linear, LINEAR_FAN), (module.conv, CONV_FAN)):
        expected = gain * DEVIATIONS[init_type](*fans)
        weight = layer.weight.detach()
        # 4608 weights and more: a deviation is known to 1 / sqrt(2 4608) = 1 %, a mean to expected / sqrt(4608).
        assert weight.std().item() == pytest.approx(expected, rel=0.05)
        assert abs(weight.mean().item()) < 4 * expected / math.sqrt(weight.numel())


@pytest.mark.parametrize("init_type", [name for name in DEVIATIONS if name.endswith("uniform")])
def test_uniform_weights_end_at_their_bound(init_type):
    weight = initialised(init_type).linear.weight.detach()
    bound = GAIN * DEVIATIONS[init_type](*LINEAR_FAN) * math.sqrt(3)
    assert 0.99 * bound < weight.abs().max().item() <= bound * (1 + 1e-6)


def test_orthogonal_rows_times_the_gain():
    weight = initialised("orthogonal").linear.weight.detach()
    torch.testing.assert_close(weight @ weight.T, GAIN**2 * torch.eye(128), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("init_type", "bound"), [("kaiming_normal", GAIN), ("xavier_normal", 1.0)])
def test_normal_weights_are_cut_at_one_as_kair_does(init_type, bound):
    # One input and one output: deviations of sqrt(2) and of 5 sqrt(2 / 2). Kaiming is cut before the gain,
    # Xavier, whose gain is its own, after it.
    module = nn.ModuleList(nn.Linear(1, 1) for _ in range(200))
    torch.manual_seed(0)
    initialise(module, init_type, GAIN if init_type == "kaiming_normal" else 5.0)
    weights = torch.cat([layer.weight.detach().flatten() for layer in module])
    assert weights.abs().max().item() == pytest.approx(bound)
    assert (weights.abs() >= bound * (1 - 1e-6)).sum() > 20


@pytest.mark.parametrize("init_type", [*DEVIATIONS, "orthogonal"])
def test_biases_are_zero_and_nothing_else_is_touched(init_type):
    module = initialised(init_type)
    assert not module.linear.bias.any()
    assert not module.conv.bias.any()
    assert torch.equal(module.norm.weight, torch.ones(8))
    assert torch.equal(module.table, torch.full((4,), 5.0))
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("init_type", ["default", "none"])
def test_the_networks_own_initialisation_is_kept(init_type):
    torch.manual_seed(0)
    untouched = Net()
    for key, tensor in initialised(init_type).state_dict().items():
        assert torch.equal(tensor, untouched.state_dict()[key])


def test_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match="init_type 'he' is not known"):
        initialise(Net(), "he", 1.0)
