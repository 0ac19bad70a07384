"""What waits on the host: the same training bit for bit, and what a trace says of it against the allocator's events."""

import gc
import math

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.example_data import ExampleData
from swinmr_profiling.profiler.prediction.predict import predict_setting
from swinmr_profiling.profiler.prediction.replay import live_peak
from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.prediction.trace.affine_trace import align
from swinmr_profiling.profiler.prediction.trace.traced_step import copy_of, trace_training
from swinmr_profiling.training.step import host_memory
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import build_settings, build_state, training_step

ALL = ["ema", "activations", "optimizer_states"]
SWINMR = {
    "net_type": "swinmr",
    "img_size": 32,
    "depths": [2],
    "num_heads": [2],
    "embed_dim": 8,
    "window_size": 8,
}
UNET = {"net_type": "unet_denoiser", "img_size": 32, "base_channels": 16, "channel_multipliers": [1, 2],
        "num_res_blocks": 1, "attention_resolutions": [16], "num_groups": 4, "head_channels": 16,
        "drop_rate": 0.2}  # fmt: skip
VIT = {"net_type": "timm", "name": "vit_tiny_patch16_224", "img_size": 96, "num_classes": 4,
       "kwargs": {"depth": 2, "embed_dim": 48, "num_heads": 3, "proj_drop_rate": 0.1}}  # fmt: skip
DIT = {
    "net_type": "dit_denoiser",
    "img_size": 64,
    "patch_size": 4,
    "embed_dim": 32,
    "depth": 3,
    "num_heads": 2,
}
RESNET = {"net_type": "timm", "name": "resnet10t", "img_size": 32, "num_classes": 4}
MLP = {"net_type": "custom", "target": "torch.nn:Linear", "input_shapes": [[64]],
       "kwargs": {"in_features": 64, "out_features": 96, "bias": False}}  # fmt: skip


def config_of(model, on_host, precision=False, **training):
    data = {} if model["net_type"] in ("timm", "custom") else {"use_patches": False}
    system = {"attention": "math", "mixed_precision": precision}
    return config_from_dict(
        {
            "model": model,
            "data": data,
            "system": system,
            "training": {"on_host": on_host, "ema_decay": 0.9, **training},
        }
    )


def prepared(config, batch_size=2):
    torch.manual_seed(0)
    built = build_model(config, trust_config=True)
    built.module.attention = "matmul"  # the CPU would take another way than the meta device
    loss = copy_of(build_loss(config, for_prediction=True), None)
    batches = ExampleData(built, config, loss, torch.device("cpu")).micro_batches(batch_size)
    return built, loss, build_settings(config, "cpu"), batches


def trained(config, steps=3):
    """Everything that a checkpoint would hold after some steps."""
    built, loss, settings, batches = prepared(config)
    state = build_state(config, built.module, loss, total_steps=steps)
    with attention_kernels(config.system.attention):
        for _ in range(steps):
            outcome = training_step(state, settings, batches)
    moments = state.optimizer.state_dict()["state"]
    return state, {
        **{f"weight {k}": v for k, v in state.module.state_dict().items()},
        **{f"ema {k}": v for k, v in state.ema.module.state_dict().items()},
        **{f"moment {n} {k}": v for n, each in moments.items() for k, v in each.items()},
        "loss": outcome.loss,
    }


CASES = {
    "swinmr": (SWINMR, {"optimizer": {"type": "adamw"}, "accumulate": 2, "gradient": {"clip_norm": 0.5}}),
    "swinmr light": (SWINMR, {"gradient_checkpointing": "light"}),
    "unet": (UNET, {"optimizer": {"type": "muon"}, "gradient_checkpointing": ["down.*"]}),
    "vit": (VIT, {"optimizer": {"type": "adafactor"}}),
    "resnet": (RESNET, {"optimizer": {"type": "sgd"}, "zero_grad": "before_backward"}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_training_is_the_same_bit_for_bit(name):
    model, training = CASES[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        _, plain = trained(config_of(model, [], **training))
        before = host_memory.MOVED.read()
        state, other = trained(config_of(model, ALL, **training))
        moved = [now - was for was, now in zip(before, host_memory.MOVED.read(), strict=True)]
    finally:
        torch.set_num_threads(threads)
    assert plain.keys() == other.keys()
    for key, value in plain.items():
        assert torch.equal(value, other[key]), key
    assert all(bytes_ > 0 for bytes_ in moved)
    with state.validated_network() as network:
        assert network is state.module
        for ours, average in zip(network.parameters(), state.ema.module.parameters(), strict=True):
            assert torch.equal(ours, average)
    for key, value in state.module.state_dict().items():
        assert torch.equal(value, plain[f"weight {key}"]), key


def test_a_validation_that_fails_gives_the_weights_back():
    state, plain = trained(config_of(SWINMR, ["ema"]), steps=1)
    with pytest.raises(ValueError, match="no data"), state.validated_network():
        raise ValueError("no data")
    for key, value in state.module.state_dict().items():
        assert torch.equal(value, plain[f"weight {key}"]), key


def test_a_checkpoint_goes_on_with_and_without():
    config, other = config_of(UNET, ALL), config_of(UNET, [])
    state, _ = trained(config, steps=2)
    saved = state.optimizer.state_dict()
    plain = build_state(other, build_model(other).module, nn.Module(), 2)
    plain.optimizer.load_state_dict(saved)
    hosted = build_state(config, build_model(config).module, nn.Module(), 2)
    hosted.optimizer.load_state_dict(plain.optimizer.state_dict())
    again = hosted.optimizer.state_dict()["state"]
    assert len(again) == len(saved["state"]) > 0
    for number, moments in saved["state"].items():
        for name, value in moments.items():
            assert torch.equal(again[number][name], value)
            assert name == "step" or again[number][name] is not value


# By hand: a linear layer without bias, x (B, 64) W (96, 64), float32. Beside the step's own tensors the device holds
# the weight alone; the average is one more, Adam's states are two.
def test_the_bytes_of_a_layer_by_hand():
    weight = 64 * 96 * 4
    peaks, moved = {}, {}
    for names in ([], ["ema"], ["optimizer_states"], ["ema", "optimizer_states"]):
        config = config_of(MLP, names)
        trace = trace_training(build_model(config, trust_config=True), config, 1, validation=False)
        peaks[len(peaks)] = live_peak(trace, trace.step_starts[0])[0]
        moved[len(moved)] = trace.moved_bytes
    assert moved == {0: [0, 0], 1: [weight, 0], 2: [2 * weight] * 2, 3: [3 * weight, 2 * weight]}
    assert peaks[0] - peaks[1] == peaks[2] - peaks[3] == weight


def test_saved_activations_by_hand(monkeypatch):
    """What a layer saves is its input, and tanh its result, which is the next layer's input."""
    hidden, batch = 512, 8
    module = nn.Sequential(nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
    x = torch.randn(batch, 64)
    kept = []
    real = host_memory.copy_to_host
    monkeypatch.setattr(
        host_memory, "copy_to_host", lambda tensor: kept.append(tensor.nbytes) or real(tensor)
    )
    with host_memory.saved_on_host(module, (x,)):
        output = module(x)
    gradients = torch.autograd.grad(output.sum(), module.parameters())
    # Not the input nor the weights: the first tanh's result for itself and for the layer, the second's for itself.
    assert kept == [batch * hidden * 4] * 3
    plain = torch.autograd.grad(module(x).sum(), module.parameters())
    assert all(torch.equal(ours, other) for ours, other in zip(gradients, plain, strict=True))


def test_small_tensors_stay():
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    before = host_memory.MOVED.read()
    with host_memory.saved_on_host(module, ()):
        module(torch.randn(4, 8)).sum().backward()
    assert host_memory.MOVED.read() == before


def out_of_torch_s_sight(like):
    """A host that PyTorch's allocator knows nothing of."""
    memory = bytearray(max(1, like.numel()) * like.element_size())
    flat = torch.frombuffer(memory, dtype=like.dtype)
    return flat.as_strided(like.shape, torch.empty_like(like, device="meta").stride())


def real_peak_bytes(config, batch_size):
    """Most bytes that PyTorch's CPU allocator had given out while a state was built and two steps ran."""
    built, loss, settings, batches = prepared(config, batch_size)
    with attention_kernels(config.system.attention):
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            state = build_state(config, copy_of(built.module, None).train(), loss, total_steps=2)
            for _ in range(2):
                training_step(state, settings, batches)
                gc.collect()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


# Of the ViT the states alone: on a CPU the convolution of its patches takes a buffer that no trace sees.
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "model", "on_host"),
    [
        ("swinmr", SWINMR, ["activations"]),
        ("swinmr", SWINMR, ["activations", "optimizer_states"]),
        ("unet", UNET, ["activations"]),
        ("vit", VIT, ["optimizer_states"]),
        ("dit", DIT, ["activations", "optimizer_states"]),
    ],
)
def test_the_predicted_peak_is_that_of_a_real_run(name, model, on_host, monkeypatch):
    batch_size = 4
    config = config_of(model, on_host, optimizer={"type": "adamw"}, ema_decay=0.0)
    built = prepared(config)[0]
    trace = trace_training(built, config, batch_size, as_on_cuda=False, validation=False)
    predicted = int(trace.live_bytes()[trace.step_starts[0] :].max())
    monkeypatch.setattr(host_memory, "empty_on_host", out_of_torch_s_sight)
    before = host_memory.MOVED.read()
    assert predicted == pytest.approx(real_peak_bytes(config, batch_size), rel=0.002)
    moved = [now - was for was, now in zip(before, host_memory.MOVED.read(), strict=True)]
    # Two steps, of which the first brings no states.
    states = sum(2 * p.nbytes for p in built.module.parameters()) if "optimizer_states" in on_host else 0
    assert [2 * trace.moved_bytes[0], 2 * trace.moved_bytes[1] - states] == moved


@pytest.mark.slow
def test_moved_bytes_of_other_batches():
    config = config_of(UNET, ALL)
    first, second, fifth = (
        trace_training(build_model(config), config, batch, validation=False) for batch in (2, 3, 5)
    )
    assert align(first, second).at(5).moved_bytes == fifth.moved_bytes


@pytest.mark.slow
def test_a_prediction_says_what_moves():
    config = config_of(MLP, ["ema", "optimizer_states"])
    built = build_model(config, trust_config=True)
    setting = setting_of(config, "fp32")
    entry = predict_setting(built, config, setting, "its loss", asked=[4])
    # 64 x 96 float32 are 24 KiB: one more, and two each way.
    assert "in a step of batch 4 0.1 MiB go to the host and 0.0 MiB come from there" in entry.assumptions[0]
    assert any("on_host" in text for text in entry.rests_on.untested)
    own = config_of(MLP, [])
    other = predict_setting(build_model(own, trust_config=True), own, setting, "its loss", asked=[4])
    assert other.memory_fingerprint != entry.memory_fingerprint
    assert not any("on_host" in text for text in other.assumptions)


@pytest.mark.slow
def test_the_average_of_a_network_does_not_leave_a_second_copy_on_the_device():
    """Neither while it is made nor later: the allocator would keep what it once had."""
    plain, hosted = (
        trace_training(build_model(config), config, 1, validation=True)
        for config in (config_of(UNET, [], ema_decay=0.0), config_of(UNET, ["ema"]))
    )
    assert plain.live_bytes().max() == hosted.live_bytes().max()
    assert (
        plain.live_bytes()[: plain.step_starts[0]].max() == hosted.live_bytes()[: hosted.step_starts[0]].max()
    )


@pytest.mark.parametrize(
    ("training", "system", "text"),
    [
        ({"on_host": ["ema", "ema"]}, {}, "names one twice"),
        ({"on_host": ["ema"], "ema_decay": 0}, {}, "no moving average"),
        ({"on_host": ["activations"], "strategy": "fsdp"}, {}, "which spreads"),
        (
            {"on_host": ["optimizer_states"], "optimizer": {"type": "adam_8bit"}},
            {},
            "keeps its states itself",
        ),
        ({"on_host": ["optimizer_states"], "optimizer": {"type": "sgd", "momentum": 0}}, {}, "no states"),
        ({"on_host": ["ema"], "adversarial": {"weight": 0.1}}, {}, "training.adversarial"),
        ({"on_host": ["ema"], "step": "a.py:B"}, {}, "training.step"),
        ({"on_host": ["weights"]}, {}, "on_host"),
        ({"on_host": ["activations"]}, {"compile": True}, "the compiler's"),
    ],
)
def test_what_does_not_go_together_is_refused(training, system, text):
    with pytest.raises(ConfigError, match=text):
        config_from_dict(
            {"model": SWINMR, "data": {"use_patches": False}, "training": training, "system": system}
        )


def test_the_loss_goes_down():
    state, content = trained(config_of(MLP, ALL), steps=3)
    assert math.isfinite(float(content["loss"]))
    assert state.step == 3


def test_nothing_has_moved_at_first():
    assert host_memory.Moved().read() == (0, 0)
