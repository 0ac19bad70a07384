"""The user's module, torch itself and the random numbers are as before, also when the forward raises."""

import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_globals

from swinmr_profiling.profiler.counting import (
    count_forward,
    count_training_step,
    cross_check_module,
    forward_backward,
)


class Network(nn.Module):
    """Batch norm, dropout, a frozen layer, a hook, random numbers and, if asked, a failure half way."""

    def __init__(self, fails: bool):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.frozen.eval()
        self.register_buffer("calls", torch.zeros(()))
        self.plain = torch.ones(4)
        self.fails = fails
        self.conv.register_forward_hook(_hook)

    def forward(self, x):
        self.calls += 1
        self.seen_shape = tuple(x.shape)
        x = F.dropout(self.norm(self.conv(x)), 0.5, True).mean((2, 3)) + torch.randn(4) + random.random()
        if self.fails:
            raise LookupError("on purpose")
        return self.frozen(x * self.plain)


class ReadsValues(Network):
    """The same, but it cannot run on meta."""

    def forward(self, x):
        assert x.sum().item() == x.sum().item()
        return super().forward(x)


class Uncopyable(ReadsValues):
    """The same, and it cannot be copied either."""

    def __init__(self, fails: bool):
        super().__init__(fails)
        self.lock = threading.Lock()


def _hook(module, args, output):
    return None


def state_of(module: nn.Module) -> dict:
    return {
        "tensors": {name: value.clone() for name, value in module.state_dict().items()},
        "identities": [id(p) for p in (*module.parameters(), *module.buffers())],
        "grads": [p.grad for p in module.parameters()],
        "requires_grad": [p.requires_grad for p in module.parameters()],
        "modes": [child.training for child in module.modules()],
        "attributes": [sorted(vars(child)) for child in module.modules()],
        "hooks": [
            (dict(child._forward_hooks), dict(child._forward_pre_hooks), dict(child._backward_hooks))
            for child in module.modules()
        ],
    }


def state_of_torch() -> dict:
    return {
        "functional": {name: id(value) for name, value in vars(F).items()},
        "tensor": {name: id(value) for name, value in vars(torch.Tensor).items()},
        "global hooks": (
            dict(module_globals._global_forward_hooks),
            dict(module_globals._global_forward_pre_hooks),
            dict(module_globals._global_forward_hooks_always_called),
        ),
        "grad": torch.is_grad_enabled(),
        "dispatch modes": torch.utils._python_dispatch._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "rng": (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()),
    }


def assert_same(before: dict, after: dict) -> None:
    tensors_before, tensors_after = before.pop("tensors"), after.pop("tensors")
    assert list(tensors_before) == list(tensors_after)
    assert all(torch.equal(tensors_before[name], tensors_after[name]) for name in tensors_before)
    assert before == after


def count(module, x):
    return count_forward(module, (x,))


def train(module, x):
    return count_training_step(forward_backward, module, (x,))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("probe", "network"),
    [(count, Network), (count, ReadsValues), (count, Uncopyable), (train, Network), (train, ReadsValues)],
)
def test_counting_leaves_everything_as_it_was(probe, network, fails, training):
    module = network(fails).train(training)
    module.frozen.eval()
    x = torch.randn(2, 3, 8, 8)
    before, torch_before = state_of(module), state_of_torch()
    if fails:
        with pytest.raises(LookupError, match="on purpose"):
            probe(module, x)
    else:
        assert probe(module, x).macs > 0
    assert_same(before, state_of(module))
    assert torch_before == state_of_torch()
    # Strict: no total_ops or other buffer may have come in.
    network(fails).load_state_dict(module.state_dict(), strict=True)


def test_a_training_step_is_not_run_on_the_users_own_module():
    module = Uncopyable(False).train()
    before = state_of(module)
    with pytest.raises(TypeError, match=r"cannot pickle .*lock"):
        train(module, torch.randn(2, 3, 8, 8))
    assert_same(before, state_of(module))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("counter", ["fvcore", "thop"])
def test_other_counters_run_on_a_copy(counter, fails):
    module = ReadsValues(False).train()
    module.frozen.eval()
    if fails:
        module.register_forward_pre_hook(_fail_outside_our_count)
    x = torch.randn(2, 3, 8, 8)
    before, torch_before = state_of(module), state_of_torch()
    check = cross_check_module(module, (x,), counter)
    assert check.status == ("raised" if fails else "ok")
    assert_same(before, state_of(module))
    assert torch_before == state_of_torch()


def _fail_outside_our_count(module, args):
    # Ours is the run under a dispatch mode.
    if not args[0].is_meta and not torch.utils._python_dispatch._len_torch_dispatch_stack():
        raise LookupError("on purpose")


def test_the_callers_inputs_are_left_alone():
    class InPlace(nn.Module):
        def forward(self, x, options):
            options["seen"] = True
            return x.add_(1) @ x.t()

    x, options = torch.zeros(3, 4), {}
    assert count_forward(InPlace(), (x, options)).macs == 3 * 4 * 3
    assert torch.equal(x, torch.zeros(3, 4))
    assert options == {}
