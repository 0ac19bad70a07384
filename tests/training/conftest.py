"""A run small enough to train in seconds: a phantom of 32 x 32 pixels and a network of a few thousand weights."""

import copy
import json

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.run.loop import TrainingRun
from swinmr_profiling.training.run.stopping import StopRequest
from tests.training.run.resumed_runs import FOUR_STEPS, StopBefore

TINY_RUN = {
    "experiment_name": "tiny",
    "data": {
        "batch_size": 2,
        "source": "phantom",
        "phantom": {"slices": 10, "val_slices": 2},
        "patch_size": 16,
        "num_workers": 0,
    },
    "model": {
        "net_type": "swinir",
        "img_size": 32,
        "window_size": 8,
        "depths": [2],
        "num_heads": [2],
        "embed_dim": 8,
    },
    "training": {
        "total_steps": 6,
        "loss": {"components": {"perceptual": {"weight": 0}}},
        "optimizer": {"lr": 1e-3},
        "scheduler": {"type": "multistep", "milestones": [4], "warmup_steps": 2},
        "gradient": {"clip_norm": 1.0},
        "ema_decay": 0.5,
        "validate_every_steps": 3,
        "checkpoint_every_steps": 100,
    },
    "logging": {"tensorboard": False, "log_interval": 1},
}


def merged(base, changes):
    """A deep copy of a config with some keys replaced; dotted names reach into sections."""
    result = copy.deepcopy(base)
    for path, value in changes.items():
        *sections, key = path.split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return result


@pytest.fixture
def tiny_run(tmp_path):
    """Builds a run on the CPU below the test's folder: `tiny_run({"training.total_steps": 9})`."""

    def build(changes=None, folder="results", stop=None):
        raw = merged(TINY_RUN, changes or {})
        raw["paths"] = {"root": str(tmp_path / folder)}
        config = config_from_dict(raw)
        return TrainingRun(config, World(0, 1, torch.device("cpu")), StopRequest() if stop is None else stop)

    return build


@pytest.fixture
def stopped(tiny_run):
    """A run that was stopped after four of its six steps; its last checkpoint."""

    def run(changes=None, steps=4):
        result = tiny_run({**FOUR_STEPS, **(changes or {})}, stop=StopBefore(steps + 1)).run()
        assert result.step == steps
        return result.checkpoint

    return run


@pytest.fixture
def go_on(tiny_run):
    """Resumes with changes of the config; the run, not yet under way."""

    def resume(changes=None):
        run = tiny_run({**FOUR_STEPS, **(changes or {})})
        assert run.resume()
        return run

    return resume


@pytest.fixture
def logged(tmp_path):
    """What the log has of one kind of record beyond a step."""

    def read(kind, beyond):
        lines = map(json.loads, (tmp_path / "results/tiny/logs/log.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == kind and line["step"] > beyond]

    return read
