"""`validate(batch)` of a step of the user's own: predicted by hand-derived sums, measured, and told where it is not."""

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.machine.devices import CpuDevice
from swinmr_profiling.profiler.measure.training.own_step import other_step, probe_own_step
from swinmr_profiling.profiler.prediction.own_step_trace import VALIDATION
from swinmr_profiling.profiler.prediction.predict import predict_setting
from swinmr_profiling.profiler.prediction.settings import TrainingSetting
from swinmr_profiling.training.step.own_step import OwnStepError

STEP = """
import torch


class Plain:
    def setup(self, device):
        self.network = torch.nn.Linear(256, 128, bias=False).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def batch(self, size):
        return torch.zeros(size, 256)

    def step(self, batch):
        self.network(batch).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Validates(Plain):
    def validate(self, batch):
        assert not torch.is_grad_enabled()
        return self.network(batch)


class Larger(Validates):
    def validation_batch(self, size):
        return torch.zeros(size, 4, 256)


class OfTheLoader:
    def setup(self, device):
        self.network = torch.nn.Conv2d(1, 1, 1).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def step(self, batch):
        assert batch["input"].shape[2:] == (16, 16), batch["input"].shape
        return self.network(batch["input"]).mean()

    def validate(self, batch):
        assert batch["input"].shape[2:] == batch["target"].shape[2:] == (32, 32)
        return self.network(batch["input"])


class Raises(Plain):
    def validate(self, batch):
        raise KeyError("scale")
"""


@pytest.fixture
def step_of(tmp_path):
    """Config, network and step of a class of the file."""
    (tmp_path / "steps.py").write_text(STEP)

    def make(name):
        config = config_from_dict(
            {
                "model": {
                    "net_type": "custom",
                    "target": "torch.nn:Conv2d",
                    "kwargs": {"in_channels": 1, "out_channels": 1, "kernel_size": 1},
                    "input_shapes": [[1, 32, 32]],
                    "training_input_shapes": [[1, 16, 16]],
                },
                "data": {"val_batch_size": 3, "patch_size": 16, "source": "phantom"},
                "training": {"step": f"steps.py:{name}", "step_folder": str(tmp_path)},
            }
        )
        built = build_model(config, trust_config=True)
        return config, built, other_step(config, built, trust_config=True)

    return make


def predicted(step_of, name):
    config, built, step = step_of(name)
    return predict_setting(
        built, config, TrainingSetting("fp32", "none", (16, 16)), "", step=step, asked=(2,)
    )


@pytest.mark.slow
def test_validation_by_hand(step_of):
    # Between steps: the weight. Of validation: input 3 x 256 and output 3 x 128 numbers, 4 bytes each.
    setting = predicted(step_of, "Validates")
    weight, taken = 256 * 128 * 4, 3 * (256 + 128) * 4
    assert setting.validation.input_shape == [3, 256]
    assert setting.validation.allocated_bytes == weight + taken
    assert VALIDATION not in setting.assumptions
    larger = predicted(step_of, "Larger")
    assert larger.validation.input_shape == [3, 4, 256]
    assert larger.validation.allocated_bytes == weight + 4 * taken
    # What training needs is the same with and without it.
    plain = predicted(step_of, "Plain")
    assert plain.validation is None
    assert VALIDATION in plain.assumptions
    assert plain.sizes["2"].allocated_bytes == setting.sizes["2"].allocated_bytes
    assert plain.peak == setting.peak


def test_the_loaders_batch_of_validation_is_of_whole_images(step_of):
    assert predicted(step_of, "OfTheLoader").validation.input_shape == [3, 1, 32, 32]


def test_one_that_raises_is_told_with_its_line(step_of):
    line = 1 + next(n for n, text in enumerate(STEP.splitlines()) if "KeyError" in text)
    with pytest.raises(OwnStepError, match=f"steps.py:{line}: KeyError"):
        predicted(step_of, "Raises")


@pytest.mark.parametrize(("name", "shape"), [("Larger", [3, 4, 256]), ("Plain", None)])
def test_it_is_measured_after_the_steps(step_of, name, shape):
    config, built, step = step_of(name)
    stages = []
    found = probe_own_step(step, built, config, torch.device("cpu"), 2, 3, CpuDevice(), stages.append)
    assert found.validation_shape == shape
    assert (found.validation is None) == (shape is None)
    assert (stages[-1] == "validation") == (shape is not None)
