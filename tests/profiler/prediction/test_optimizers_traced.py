"""What optimizers allocate, without data against a real run: the same bytes alive after every event."""

import numpy as np
import pytest
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.prediction.replay import live_by_category
from swinmr_profiling.profiler.prediction.trace.storage_trace import PHASES
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training


def built_and_config(kind, **training):
    """Weights 8 x 16 x 3 x 3, 64 x 128 and 32 x 64, and a bias each."""
    network = nn.Sequential(
        nn.Conv2d(16, 8, 3, padding=1), nn.Flatten(), nn.Linear(128, 64), nn.Linear(64, 32)
    )
    inputs = (InputSpec((16, 4, 4)),)
    built = BuiltModel("custom", network, {"inference": inputs, "training": inputs, "cross_check": inputs})
    model = {"net_type": "custom", "target": "torch.nn:Identity", "input_shapes": [[16, 4, 4]]}
    settings = {"optimizer": {"type": kind}, "ema_decay": 0, **training}
    return built, config_from_dict({"model": model, "training": settings})


def state_of(trace):
    """Bytes of optimizer_state alive at the end of the steps, each rounded up to 512."""
    return live_by_category(trace, len(trace.events) - 1)["optimizer_state"]


# Counters of steps are on the CPU, beside a GPU's memory: 4 bytes of each parameter that has one.
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "counters"), [("adam", 6), ("sgd", 0), ("adafactor", 6), ("muon", 4)])
def test_every_byte_of_the_update_is_that_of_a_real_run(kind, counters):
    built, config = built_and_config(kind)
    without_data, real = (
        trace_training(built, config, 2, as_on_cuda=False, validation=False, device=device)
        for device in ("meta", "cpu")
    )
    update = PHASES.index("optimizer")

    def largest(trace):
        return int(trace.live_bytes()[trace.event_phases == update].max())

    assert largest(without_data) == largest(real) - 4 * counters
    assert int(without_data.live_bytes().max()) == int(real.live_bytes().max()) - 4 * counters
    assert without_data.live_bytes()[-1] == real.live_bytes()[-1] - 4 * counters


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "by_hand"),
    [
        # Two moments: 1152, 8192, 2048 numbers, and biases of 8, 64, 32 (512 bytes each).
        ("adam", 2 * (4 * (1152 + 8192 + 2048) + 3 * 512)),
        ("sgd", 4 * (1152 + 8192 + 2048) + 3 * 512),
        # One momentum of each matrix; two moments of the convolution and the biases.
        ("muon", 4 * (8192 + 2048) + 2 * (4 * 1152 + 3 * 512)),
        # Rows and columns: 8 x 16 x 3 twice (1536 bytes each), 64 + 128, 32 + 64 numbers (512 bytes each).
        ("adafactor", 2 * 1536 + 4 * 512 + 3 * 512),
        # A byte of 8192 numbers and 32 blocks' float32 (512 bytes), twice; two tables of 256 float32; the rest fp32.
        ("adamw_8bit", 2 * (8192 + 512) + 2 * 1024 + 2 * (4 * (1152 + 2048) + 3 * 512)),
    ],
)
def test_states_by_hand(kind, by_hand):
    built, config = built_and_config(kind)
    trace = trace_training(built, config, 2, validation=False)
    assert state_of(trace) == by_hand


@pytest.mark.slow
def test_muon_orthogonalises_in_bf16():
    # Newton-Schulz of the 64 x 128 weight: the update in bf16, its product with itself (64 x 64), and the sum of it.
    built, config = built_and_config("muon")
    trace = trace_training(built, config, 2, validation=False)
    in_update = trace.phases == PHASES.index("optimizer")
    sizes = set(trace.sizes[in_update].tolist())
    assert {2 * 64 * 128, 2 * 64 * 64} <= sizes


@pytest.mark.slow
def test_a_step_with_frozen_matrices_has_no_state_of_them():
    built, config = built_and_config("adam")
    built.module[2].requires_grad_(False)
    trace = trace_training(built, config, 2, validation=False)
    assert state_of(trace) == 2 * (4 * (1152 + 2048) + 2 * 512)
    assert np.array_equal(trace.sizes, trace_training(built, config, 2, validation=False).sizes)
