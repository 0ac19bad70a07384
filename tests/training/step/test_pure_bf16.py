"""`mixed_precision` "pure_bf16": weights, gradients and states of two bytes, in every network of our own."""

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.models.trained_parameters import to_bf16_weights
from swinmr_profiling.profiler.measure.example_data import ExampleData
from swinmr_profiling.profiler.prediction.replay import live_by_category
from swinmr_profiling.profiler.prediction.settings import PRECISION_VALUES, setting_of
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS, memory_fingerprint
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import build_settings, build_state, training_step

NETWORKS = {
    "swinmr": {"net_type": "swinmr", "img_size": 32, "depths": [2], "num_heads": [2], "embed_dim": 12},
    "unet": {
        "net_type": "unet_denoiser", "img_size": 16, "base_channels": 8, "channel_multipliers": [1, 2],
        "num_res_blocks": 1, "attention_resolutions": [8], "head_channels": 8, "num_groups": 4,
    },
    "dit": {
        "net_type": "dit_denoiser", "img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2,
    },
}  # fmt: skip


def config_of(model, **training):
    return config_from_dict({
        "model": model, "data": {"use_patches": False}, "system": {"mixed_precision": "pure_bf16"},
        "training": {"ema_decay": 0, **training},
    })  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_and_a_validation_of_our_own_networks(name):
    torch.manual_seed(0)
    config = config_of(NETWORKS[name])
    built = build_model(config)
    loss, settings = build_loss(config), build_settings(config, "cpu")
    assert settings.autocast_dtype is None
    data = ExampleData(built, config, loss, torch.device("cpu"))
    state = build_state(config, built.module, loss, total_steps=1)
    outcome = training_step(state, settings, data.micro_batches(1))
    assert torch.isfinite(outcome.loss)
    with torch.no_grad():
        data.validation(settings)(built.module.eval())
    kept = [*built.module.parameters(), *(p.grad for p in built.module.parameters() if p.grad is not None)]
    kept += [t for moments in state.optimizer.state.values() for t in moments.values() if t.dim()]
    assert {t.dtype for t in kept} == {torch.bfloat16}


def three_layers():
    network = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.Flatten(), nn.Linear(128, 64))
    inputs = (InputSpec((16, 4, 4)),)
    shapes = {"inference": inputs, "training": inputs, "cross_check": inputs}
    model = {"net_type": "custom", "target": "torch.nn:Identity", "input_shapes": [[16, 4, 4]]}
    return BuiltModel("custom", to_bf16_weights(network), shapes), config_of(
        model, optimizer={"type": "adamw"}
    )


def test_two_bytes_a_number_by_hand():
    built, config = three_layers()
    trace = trace_training(built, config, 2, validation=False)
    alive = live_by_category(trace, len(trace.events) - 1)
    # 8 x 16 x 9 = 1152 numbers, rounded up to 5 x 512 bytes, 64 x 128, and two biases in 512 bytes each.
    weights = 5 * 512 + 2 * 8192 + 2 * 512
    assert alive["parameters"] == weights
    assert alive["optimizer_state"] == 2 * weights
    # The batch stays fp32 beside its bf16 copy: 2 x 16 x 4 x 4 numbers.
    sizes = trace.sizes.tolist()
    assert 2 * 256 * 4 in sizes
    assert 2 * 256 * 2 in sizes


@pytest.mark.slow
def test_the_trace_is_that_of_a_real_run():
    built, config = three_layers()
    traces = [
        trace_training(built, config, 2, as_on_cuda=False, validation=False, device=device)
        for device in ("meta", "cpu")
    ]
    peaks = [int(trace.live_bytes().max()) for trace in traces]
    # Beside a GPU's memory: the four parameters' counters of steps.
    assert peaks[0] == peaks[1] - 4 * 4


def test_it_is_a_precision_of_its_own():
    _, config = three_layers()
    plain = config.model_copy(update={"system": config.system.model_copy(update={"mixed_precision": False})})
    assert memory_fingerprint(plain) != memory_fingerprint(config)
    assert PRECISIONS["pure_bf16"] == setting_of(config, "pure_bf16").precision == "pure_bf16"
    assert PRECISION_VALUES["pure_bf16"] == config.system.mixed_precision


def test_an_average_of_bf16_weights_is_refused():
    with pytest.raises(ConfigError, match="stands still") as caught:
        config_of(NETWORKS["unet"], ema_decay=0.999)
    assert "training.ema_decay" in str(caught.value)
