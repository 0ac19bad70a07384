"""Optimizers beyond Adam and SGD: their first step by hand or by torch's own, their states in bytes, their refusals."""

import copy
import sys
import types

import pytest
import torch
from torch import nn

from swinmr_profiling.configs.sections.training import OptimizerSection, SchedulerSection
from swinmr_profiling.training.errors import OptimizerError
from swinmr_profiling.training.step import optimizers
from swinmr_profiling.training.step.optimizers import build_optimizer, build_scheduler

KINDS = ("adafactor", "muon")


def section(kind, **more):
    return OptimizerSection(type=kind, lr=0.01, **more)


def network(device="cpu"):
    """Weights 8 x 16 x 3 x 3, 64 x 128 and 32 x 64, and a bias each."""
    torch.manual_seed(0)
    with torch.device(device):
        return nn.Sequential(
            nn.Conv2d(16, 8, 3, padding=1), nn.Flatten(), nn.Linear(128, 64), nn.Linear(64, 32)
        )


def step(module, optimizer):
    optimizer.zero_grad()
    device = next(module.parameters()).device
    module(torch.ones(2, 16, 4, 4, device=device)).square().mean().backward()
    optimizer.step()


def test_muon_takes_matrices_and_leaves_the_rest_to_adamw():
    ours, plain = network(), network()
    optimizer = build_optimizer(ours.parameters(), section("muon", momentum=0.95, weight_decay=0.1))
    matrices = [p for p in plain.parameters() if p.dim() == 2]
    others = [p for p in plain.parameters() if p.dim() != 2]
    pair = (
        torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=0.01, weight_decay=0.1),
    )
    for _ in range(3):
        step(ours, optimizer)
        for one in pair:
            one.zero_grad()
        plain(torch.ones(2, 16, 4, 4)).square().mean().backward()
        for one in pair:
            one.step()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    # One momentum of each matrix, two moments and a step of each of the four others.
    kept = sum(t.numel() for state in optimizer.state.values() for t in state.values())
    assert kept == 64 * 128 + 32 * 64 + 2 * (8 * 16 * 9 + 8 + 64 + 32) + 4


def test_adafactor_is_torchs():
    ours, plain = network(), network()
    optimizer = build_optimizer(ours.parameters(), section("adafactor"))
    theirs = torch.optim.Adafactor(plain.parameters(), lr=0.01)
    for _ in range(2):
        step(ours, optimizer)
        step(plain, theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_and_a_checkpoint_reach_every_group(kind):
    ours = network()
    optimizer = build_optimizer(ours.parameters(), section(kind))
    scheduler = build_scheduler(optimizer, SchedulerSection(milestones=[1], gamma=0.5), 10)
    step(ours, optimizer)
    scheduler.step()
    assert {group["lr"] for group in optimizer.param_groups} == {0.005}
    again = network()
    again.load_state_dict(ours.state_dict())
    other = build_optimizer(again.parameters(), section(kind))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(ours, optimizer)
    step(again, other)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), again.parameters(), strict=True))


def bytes_of(states):
    tensors = {id(t): t for state in states.values() for t in state.values() if isinstance(t, torch.Tensor)}
    return sum(t.nbytes for t in tensors.values() if t.dim())


def test_states_of_eight_bit_adam_by_hand():
    module = network("meta")
    optimizer = build_optimizer(module.parameters(), section("adamw_8bit"))
    for _ in range(2):
        step(module, optimizer)
    # 64 x 128 = 8192 numbers: a byte each, and 32 blocks of 256 with a float32 each, twice. The rest, below 4096
    # numbers (the convolution's 1152, 2048, the biases' 8, 64, 32), is two float32 each.
    quantized = 2 * (8192 + 4 * 32)
    assert bytes_of(optimizer.state) == quantized + 2 * 4 * (1152 + 2048 + 8 + 64 + 32)
    assert [t.numel() for t in optimizer._tables] == [256, 256]
    assert optimizers.state_bytes(module.parameters(), section("adamw_8bit")) == bytes_of(optimizer.state)


@pytest.mark.parametrize("kind", ["adam", "sgd", *KINDS])
def test_bytes_kept_are_those_of_the_states(kind):
    module = network()
    optimizer = build_optimizer(module.parameters(), section(kind))
    step(module, optimizer)
    assert optimizers.state_bytes(module.parameters(), section(kind)) == bytes_of(optimizer.state)


@pytest.mark.parametrize("kind", ["adam", *KINDS, "adam_8bit"])
def test_every_moment_has_the_shape_that_a_checkpoint_is_checked_for(kind):
    module = network("meta" if kind == "adam_8bit" else "cpu")
    optimizer = build_optimizer(module.parameters(), section(kind))
    step(module, optimizer)
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.dim():
                assert tuple(value.shape) == optimizers.moment_shape(name, parameter.shape), name
    assert optimizers.moment_shape("qmap1", torch.Size((64, 128))) == (256,)


def test_muon_without_a_matrix_is_refused_in_one_line():
    with pytest.raises(OptimizerError, match="none of the trained parameters is one") as caught:
        build_optimizer(nn.Conv2d(3, 3, 3).parameters(), section("muon"))
    assert "\n" not in str(caught.value)


def test_eight_bit_adam_is_refused_where_it_cannot_run(monkeypatch):
    with pytest.raises(OptimizerError, match="CUDA device alone, not on cpu"):
        build_optimizer(network().parameters(), section("adam_8bit"))
    # What a CUDA device would be asked for: the library, and its class of that name.
    on_cuda = [types.SimpleNamespace(device=torch.device("cuda"), requires_grad=True)]
    monkeypatch.setattr(optimizers.util, "find_spec", lambda name: None)
    with pytest.raises(OptimizerError, match="pip install bitsandbytes"):
        build_optimizer(on_cuda, section("adam_8bit"))
    asked = {}
    library = types.SimpleNamespace(
        Adam8bit=None, AdamW8bit=lambda parameters, **options: asked.update(options) or "theirs"
    )
    monkeypatch.setattr(optimizers.util, "find_spec", lambda name: "found")
    monkeypatch.setitem(sys.modules, "bitsandbytes", types.SimpleNamespace(optim=library))
    assert build_optimizer(on_cuda, section("adamw_8bit", weight_decay=0.1)) == "theirs"
    assert asked == {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
