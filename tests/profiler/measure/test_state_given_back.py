"""What measuring changes is given back: hooks, global settings, training flags."""

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.measure.forward_pass import (
    first_nonfinite_module,
    state_preserved,
)
from tests.profiler.measure.test_forward_pass import Culprits, Returns, measure


def test_a_nan_that_only_the_compiled_form_makes_is_the_networks():
    module = nn.Conv2d(1, 1, 1)
    got = measure(module, forward=lambda x: module(x) * float("nan"))
    assert got.first_nonfinite_module == "(the network)"


@pytest.mark.parametrize("fails", [False, True])
def test_hooks_are_removed(fails):
    module = Culprits()
    inputs = torch.rand(1, 2 if fails else 1, 8, 8)
    if fails:
        with pytest.raises(RuntimeError):
            first_nonfinite_module(module, lambda: module(inputs))
    else:
        assert first_nonfinite_module(module, lambda: module(inputs)) == "group.log"
    assert not any(part._forward_hooks for part in module.modules())


def settings():
    """Everything global that a network could change while it runs."""
    cudnn, backends = torch.backends.cudnn, torch.backends
    return {
        "rng": torch.get_rng_state().tolist(),
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cudnn": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
        "tf32": (backends.cuda.matmul.allow_tf32, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision),
        "grad": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        ),
    }


class Meddler(nn.Module):
    """Changes all that can be changed, each time it runs."""

    def __init__(self, fails, newer_names):
        super().__init__()
        self.part = nn.Dropout(0.5)
        self.norm = nn.BatchNorm2d(1)
        self.fails, self.newer_names = fails, newer_names

    def forward(self, x):
        x = self.norm(self.part(x))
        self.part.train()
        torch.manual_seed(99)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(torch.get_num_threads() % 2 + 1)
        cudnn = torch.backends.cudnn
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic = False, True, True
        if self.newer_names:
            # From here on torch refuses to read the older names.
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            cudnn.conv.fp32_precision = "ieee"
        else:
            torch.set_float32_matmul_precision("medium")
            cudnn.allow_tf32 = False
        torch.set_grad_enabled(True)
        if self.fails:
            raise ValueError("the network's own")
        return x


@pytest.mark.parametrize("newer_names", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_global_is_left_changed(fails, newer_names):
    module = Meddler(fails, newer_names)
    before = settings()
    if fails:
        with pytest.raises(ValueError, match="the network's own"):
            measure(module)
    else:
        measure(module)
    assert settings() == before


def test_a_network_that_had_set_the_newer_names_before_is_measured():
    matmul = torch.backends.cuda.matmul
    precision = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"

        def change(x):
            matmul.fp32_precision = "ieee"
            return x

        measure(Returns(change))
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = precision


@pytest.mark.parametrize("fails", [False, True])
def test_each_submodules_training_flag_is_given_back(fails):
    module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Dropout(0.5))
    module.train()
    module[1].eval()  # frozen statistics, as in fine-tuning
    flags = [part.training for part in module.modules()]
    with pytest.raises(KeyError) if fails else state_preserved(module), state_preserved(module):
        module.eval()
        if fails:
            raise KeyError
    assert [part.training for part in module.modules()] == flags == [True, True, False, True]
