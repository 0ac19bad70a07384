"""A network whose forward takes gradients itself trains, validates, is checked, traced and measured as any other."""

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.example_data import output_shape
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_inference, trace_training
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.evaluation.evaluation import reconstruct
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.run.loop import TrainingRun
from swinmr_profiling.training.run.stopping import StopRequest
from tests.training.conftest import TINY_RUN, merged

NETWORK = """
import torch

class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, x):
        image = x.detach().requires_grad_()
        energy = self.conv(image).square().sum()
        return x - 0.01 * torch.autograd.grad(energy, image, create_graph=self.training)[0]
"""


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x.square().sum(), x)[0]


def test_it_is_run_with_gradients_and_tried_without_but_once():
    network, x = Energy(), torch.ones(3)
    for calls in (2, 3):
        assert torch.equal(without_gradients(network, lambda: network(x)), torch.full((3,), 2.0))
        assert network.calls == calls


def test_others_are_run_without():
    network = nn.Linear(3, 2)
    assert without_gradients(network, lambda: network(torch.ones(3))).is_inference()

    def fails():
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        without_gradients(network, fails)


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "own_energy_denoiser.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = {
        "net_type": "custom",
        "target": "own_energy_denoiser:Denoiser",
        "input_shapes": [[1, 32, 32]],
        "training_input_shapes": [[1, 16, 16]],
    }
    raw = merged(TINY_RUN, {"model": model, "paths": {"root": str(tmp_path / "results")}})
    raw["training"]["loss"] = {"type": "l1"}
    return config_from_dict(raw)


def test_it_trains_and_validates(config):
    run = TrainingRun(config, World(0, 1, torch.device("cpu")), StopRequest(), trust_config=True)
    assert run.run().step == 6
    values, _ = run._validate(None)
    assert values.network.psnr_db is not None
    assert values.loss > 0


@pytest.mark.slow
def test_it_is_evaluated_and_traced(config):
    built = build_model(config, trust_config=True)
    assert output_shape(built, 3, "inference") == (3, 1, 32, 32)
    image = reconstruct(built.module.eval(), torch.ones(1, 1, 32, 32), None)
    assert image.shape == (1, 1, 32, 32)
    assert not image.requires_grad
    assert trace_inference(built, config, 2).sizes.sum() > 0
    assert trace_training(built, config, 2).sizes.sum() > 0
