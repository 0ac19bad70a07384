"""The checks of the network that need a device which is not there."""

import json

import pytest
import torch

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.setup import setup_network
from swinmr_profiling.training.setup.setup_checks import SetupContext
from swinmr_profiling.training.setup.single_step_process import StepReport
from tests.training.conftest import TINY_RUN


@pytest.mark.parametrize(("free_mib", "status"), [(999, "failed"), (1000, "ok")])
def test_of_a_gpu_the_step_is_predicted(tmp_path, monkeypatch, free_mib, status):
    """With a card that is made up: what it has free decides whether the step is begun."""
    report = StepReport(
        loss=0.5,
        seconds=1.0,
        peak_bytes=900 * 2**20,
        memory_kind="CUDA caching allocator",
    )
    monkeypatch.setattr(
        "swinmr_profiling.training.setup.single_step_process.run_single_step", lambda *a, **k: report
    )
    monkeypatch.setattr(setup_network, "_free_bytes", lambda context: free_mib * 2**20)
    context = SetupContext("tiny.json", lambda: 0, lambda context: 1000 * 2**20)
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(TINY_RUN))
    context.loaded, context.device = load_config(file), torch.device("cuda:0")
    context.built = build_model(context.config)
    [finding] = setup_network.check_training_step(context)
    assert finding.status == status
    assert f"predicted 1000.0 MiB, {free_mib}.0 MiB free" in finding.detail


def test_what_cannot_be_predicted_says_why_and_the_step_is_made_all_the_same(tmp_path, monkeypatch):
    def predict(context):
        raise RuntimeError("the predicting process died\nat some line")

    report = StepReport(0.5, 1.0, 900 * 2**20, "CUDA caching allocator")
    monkeypatch.setattr(
        "swinmr_profiling.training.setup.single_step_process.run_single_step", lambda *a, **k: report
    )
    monkeypatch.setattr(setup_network, "_free_bytes", lambda context: 0)
    context = SetupContext("tiny.json", lambda: 0, predict)
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(TINY_RUN))
    context.loaded, context.device = load_config(file), torch.device("cuda:0")
    context.built = build_model(context.config)
    [finding] = setup_network.check_training_step(context)
    assert finding.status == "ok"
    assert (
        "its memory is unknown: RuntimeError on meta tensors: the predicting process died" in finding.detail
    )
