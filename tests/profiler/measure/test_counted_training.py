"""MACs of the step that train.py makes: forward, backward and optimizer, counted and held against the parts by hand."""

import copy

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward, count_training_step
from swinmr_profiling.profiler.measure.training.counted_training import count_training
from tests.training.conftest import TINY_RUN, merged


def config_of(changes=None):
    return config_from_dict(merged(TINY_RUN, copy.deepcopy(changes or {})))


def counted(changes=None):
    config = config_of(changes)
    built = build_model(config)
    return built, config, count_training(built, config).model_dump()


def test_forward_and_backward_of_a_sample():
    built, config, block = counted({"data.batch_size": 2, "training.accumulate": 3})
    forward = count_forward(built.module.train(), built.example_inputs(1, which="training")).macs
    (height, width), channels = config.training_patch_hw, config.model.in_chans
    first = height * width * channels * config.model.embed_dim * 9
    sample = block["per_sample"]
    assert sample["forward_macs"] == forward
    # Two products for one of the forward, but the first convolution's input, the image, needs no gradient.
    assert sample["backward_macs"] == 2 * forward - first
    assert sample["macs"] == 3 * forward - first
    assert sample["loss_macs"] == sample["recomputed_macs"] == 0
    step = block["per_step"]
    assert step["samples"] == 6
    assert step["forward_macs"] == 6 * forward
    assert step["macs"] == 6 * sample["macs"]
    assert step["flops"] == 2 * step["macs"]
    assert step["optimizer_macs"] == 0
    parameters = sum(p.numel() for p in built.module.parameters())
    assert 5 * parameters < step["optimizer_elementwise_flops"] < 50 * parameters
    assert block["uncounted_operators"] == {}


def test_the_network_stays_as_it_was():
    config = config_of()
    built = build_model(config)
    before = {name: value.clone() for name, value in built.module.state_dict().items()}
    count_training(built, config)
    assert all(torch.equal(value, before[name]) for name, value in built.module.state_dict().items())
    assert all(p.grad is None for p in built.module.parameters())


def test_recomputation_is_apart():
    _, _, plain = counted({"data.batch_size": 1})
    _, _, checkpointed = counted({"data.batch_size": 1, "training.gradient_checkpointing": "full"})
    assert checkpointed["per_sample"]["macs"] == plain["per_sample"]["macs"]
    recomputed = checkpointed["per_sample"]["recomputed_macs"]
    assert 0 < recomputed < checkpointed["per_sample"]["forward_macs"]
    assert checkpointed["per_step"]["recomputed_macs"] == recomputed


def test_precision_clipping_and_averaging_change_no_multiply_add():
    _, _, plain = counted()
    changes = {
        "system.mixed_precision": "fp16",
        "training.gradient.clip_norm": 1.0,
        "training.ema_decay": 0.99,
    }
    _, _, changed = counted(changes)
    assert changed["per_sample"] == plain["per_sample"]
    assert changed["per_step"]["macs"] == plain["per_step"]["macs"]


def step_with(optimizer_of):
    def step(module, x, **options):
        optimizer = optimizer_of(module.parameters(), **options)
        module(x).square().sum().backward()
        optimizer.step()

    return step


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch before 2.9 has no Muon")
def test_muon_multiplies_matrices():
    report = count_training_step(
        step_with(torch.optim.Muon), nn.Linear(16, 8, bias=False), (torch.ones(5, 16),)
    )
    # Five steps of Newton and Schulz on 8 x 16: X X' (8 x 16 x 8), its square (8 x 8 x 8), and times X (8 x 8 x 16).
    assert report.macs_by_phase["optimizer"] == 5 * (8 * 16 * 8 + 8 * 8 * 8 + 8 * 8 * 16)
    assert report.macs_by_phase["forward"] == report.macs_by_phase["backward"] == 5 * 16 * 8
    assert report.training_macs == sum(report.macs_by_phase.values())


@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop]
)
def test_other_optimizers_multiply_none(optimizer):
    report = count_training_step(step_with(optimizer), nn.Linear(16, 8), (torch.ones(5, 16),))
    assert report.macs_by_phase == {"forward": 640, "loss": 0, "backward": 640, "optimizer": 0}
    assert report.elementwise_flops_by_phase["optimizer"] >= 16 * 8 + 8


def test_an_optimizer_that_calls_the_network_has_its_own_work_alone():
    def step(module, x):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def closure():
            loss = module(x).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    report = count_training_step(step, nn.Linear(16, 8), (torch.ones(5, 16),))
    assert report.macs_by_phase == {"forward": 640, "loss": 0, "backward": 640, "optimizer": 0}


class Energy(nn.Module):
    """A score: the gradient of a scalar by the input."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = x.detach().requires_grad_()
        energy = self.second(self.first(x).square()).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]


def test_a_forward_that_takes_gradients_is_counted_with_them():
    report = count_forward(Energy(), (torch.ones(3, 16),))
    # Each layer once forward and once for its input: the weights need none.
    assert report.macs == 2 * 3 * (16 * 8 + 8 * 4)
    children = {child["name"]: child["macs"] for child in report.by_module["children"]}
    assert children == {"first": 2 * 3 * 16 * 8, "second": 2 * 3 * 8 * 4}
    assert report.counted_on == "meta"
    assert "takes gradients itself" in report.note


def test_training_through_a_forward_that_takes_gradients():
    report = count_training_step(
        lambda module, x: module(x).square().sum().backward(), Energy(), (torch.ones(3, 16),)
    )
    first, second = 3 * 16 * 8, 3 * 8 * 4
    assert report.macs_by_phase["forward"] == 2 * (first + second)
    # The loss by the input's gradient g W1, with g = 2 z (1 W2): W1 and g, then W2 of 1 W2 (1 needs none), and by z
    # of the first layer its weight and its input, which the forward has asked a gradient of.
    assert report.macs_by_phase["backward"] == 2 * first + second + 2 * first
    assert report.recomputed_macs == 0
