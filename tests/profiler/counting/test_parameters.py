"""Parameters and buffers counted by hand."""

import torch
from torch import nn

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.parameters import MIB, describe_parameters, with_counts


def describe(module):
    return describe_parameters(module, [1])


def test_layers_by_hand():
    module = nn.Sequential()
    module.add_module("conv", nn.Conv2d(3, 8, 3))  # 8 (3 3 3 + 1) = 224
    module.add_module("norm", nn.BatchNorm2d(8))  # 16, and 8 + 8 + 1 in buffers
    module.add_module("head", nn.Linear(8, 5))  # 8 5 + 5 = 45
    got = describe(module)
    assert got.parameters_by_module == {"conv": 224, "norm": 16, "head": 45}
    assert got.total_parameters == got.trainable_parameters == 285
    assert got.parameter_bytes == 4 * 285
    assert got.model_size_mb == 4 * 285 / 2**20 == 4 * 285 / MIB
    assert got.buffer_elements == 17
    # Sixteen floats and one int64.
    assert got.buffer_bytes == 16 * 4 + 8


def test_what_was_counted_of_one_image():
    """2 x 5 x 8 x 8 FLOPs of 8 x 8 parameters."""
    module, inputs = nn.Linear(8, 8, bias=False), (torch.zeros(5, 8),)
    got = with_counts(describe_parameters(module, [5, 8]), count_forward(module, inputs))
    assert (got.num_runs, got.macs, got.flops, got.flops_per_parameter) == (1, 320, 640, 10.0)
    assert (got.gmacs, got.gflops) == (320e-9, 640e-9)


def test_frozen_parameters_are_not_trainable():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    got = describe(module)
    assert (got.total_parameters, got.trainable_parameters) == (20 + 10, 10)


class Tied(nn.Module):
    """An embedding (10, 4) and a head that shares its weight and adds a bias of 10."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10)
        self.head.weight = self.embed.weight


def test_tied_weights_count_once_for_the_first():
    got = describe(Tied())
    assert got.parameters_by_module == {"embed": 40, "head": 10}
    assert got.total_parameters == 50
    assert got.parameter_bytes == 200


def test_a_module_registered_twice_counts_once():
    module = nn.Module()
    module.first = nn.Linear(4, 4)
    module.again = module.first
    got = describe(module)
    assert got.total_parameters == 20
    assert sum(got.parameters_by_module.values()) == 20


def test_weights_tied_across_deeper_levels_count_once():
    module = nn.Module()
    module.left = nn.Sequential(nn.Linear(3, 3, bias=False))
    module.right = nn.Sequential(nn.Sequential(nn.Linear(3, 3)))
    module.right[0][0].weight = module.left[0].weight
    assert describe(module).parameters_by_module == {"left": 9, "right": 3}


class Root(nn.Module):
    """A raw parameter and a buffer on the root, beside a child that shares the parameter."""

    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, 7, 2))
        self.register_buffer("mask", torch.zeros(5, dtype=torch.bool))
        self.register_buffer("index", torch.zeros(3, dtype=torch.int64), persistent=False)
        self.child = nn.Linear(2, 2)
        self.child.shared = self.position


def test_a_raw_parameter_on_the_root_has_a_name_of_its_own():
    got = describe(Root())
    assert got.parameters_by_module == {"child": 6, "(itself)": 14}
    assert got.total_parameters == 20
    # Whether a buffer is saved makes no difference to the memory it takes.
    assert got.buffer_elements == 8
    assert got.buffer_bytes == 5 + 24


def test_the_parts_sum_to_the_whole():
    for module in (Tied(), Root(), nn.TransformerEncoderLayer(16, 2, 32), nn.Sequential()):
        got = describe(module)
        assert sum(got.parameters_by_module.values()) == got.total_parameters
        assert got.total_parameters == sum(p.numel() for p in set(module.parameters()))


def test_half_precision_takes_half_the_bytes():
    got = describe(nn.Linear(4, 4).half())
    assert (got.total_parameters, got.parameter_bytes) == (20, 40)


def test_a_layer_alone_has_only_itself():
    assert describe(nn.Linear(4, 2)).parameters_by_module == {"(itself)": 10}


def test_nothing_is_nothing():
    got = describe(nn.Identity())
    assert (got.total_parameters, got.buffer_bytes, got.parameters_by_module) == (0, 0, {})
