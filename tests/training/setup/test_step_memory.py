"""The estimate of a step's memory: counted by hand where that is possible, and moving the right way elsewhere."""

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.setup.step_memory import (
    MARGIN,
    PROCESS_BYTES,
    LiveBytes,
    StepEstimate,
    estimate_step,
)
from tests.training.conftest import TINY_RUN, merged


def test_live_bytes_by_hand():
    """1000 float32 are 4000 bytes; what was there before and what is a view are nothing new."""
    before = torch.empty(1000, device="meta")
    with LiveBytes() as mode:
        first = before * 2  # 4000
        second = first + 1  # 8000
        view = second.reshape(10, 100).t()
        assert mode.live_bytes == 8000
        del first  # 4000
        assert mode.live_bytes == 4000
        third = second.to(torch.float64)  # 12000
        del second, third
        assert mode.live_bytes == 4000  # the view holds it
        del view
        before.add_(1)
    assert mode.live_bytes == 0
    assert mode.peak_bytes == 12000


def estimate(changes=None):
    config = config_from_dict(merged(TINY_RUN, {"training.ema_decay": 0.9, **(changes or {})}))
    return estimate_step(build_model(config), config)


def test_parts_of_the_estimate():
    """Adam keeps two copies and the moving average is one: three times the parameters, all trained here."""
    found = estimate()
    config = config_from_dict(TINY_RUN)
    parameters = 4 * sum(p.numel() for p in build_model(config).module.parameters())
    assert found.state_bytes == 3 * parameters
    assert found.parameter_bytes >= parameters
    assert found.step_bytes > parameters  # gradients alone are as much
    assert estimate({"training.optimizer.type": "sgd", "training.ema_decay": 0}).state_bytes == parameters


@pytest.mark.slow
def test_larger_patches_need_more_and_checkpointing_less():
    small, large = estimate({"data.patch_size": 16}), estimate({"data.patch_size": 32})
    assert 3 < large.step_bytes / small.step_bytes < 4.5
    deep = {"model.depths": [2] * 4, "model.num_heads": [2] * 4, "data.patch_size": 32}
    saved = estimate({**deep, "training.gradient_checkpointing": "full"})
    assert saved.step_bytes < 0.6 * estimate(deep).step_bytes


def test_the_margin_is_stated():
    found = StepEstimate(parameter_bytes=100, state_bytes=300, step_bytes=1000)
    assert found.needed_bytes() == int(MARGIN * 1400) + PROCESS_BYTES
