"""What the predicted peak makes of each setting, in amounts worked out by hand.

Two networks of two linear layers without biases. In the wide one (1024 x 1024 twice: W = 8 MiB of weights, activations
of a few KiB) the peak is the optimizer's step; in the narrow one (64 x 64 twice, batches of 8192: an activation of
A = 2 MiB) it is the backward pass.
"""

import json

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.models.trained_parameters import freeze
from swinmr_profiling.profiler.prediction.replay import live_by_category, live_peak
from swinmr_profiling.profiler.prediction.trace import traced_step
from swinmr_profiling.profiler.prediction.trace.storage_trace import PHASES, StorageTrace
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.training.step.losses import LossValue

MIB, KIB = 2**20, 2**10
WIDE, NARROW = 1024, 64
W = 2 * WIDE * WIDE * 4
HALF = W // 2
NARROW_WEIGHTS = 2 * NARROW * NARROW * 4
NARROW_BATCH = 8192
A = NARROW_BATCH * NARROW * 4


class TwoLayers(nn.Module):
    def __init__(self, width, tied=False):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        if tied:
            self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def built(width, **options):
    inputs = (InputSpec((width,)),)
    module = TwoLayers(width, **options)
    return BuiltModel("custom", module, {"inference": inputs, "training": inputs, "cross_check": inputs})


@pytest.fixture
def config_of(tmp_path):
    """A config with these training options over: Adam, no moving average, no accumulation."""

    def load(**training):
        file = tmp_path / "config.json"
        training = {"optimizer": {"type": "adam"}, "ema_decay": 0, **training}
        model = {"net_type": "custom", "target": "torch.nn:Identity", "input_shapes": [[WIDE]]}
        file.write_text(json.dumps({"model": model, "training": training}))
        return load_config(file).config

    return load


def peak(network, config, batch_size=1):
    """Most live bytes, the phase it is in and what is alive then."""
    trace = trace_training(network, config, batch_size, validation=False)
    bytes_, event = live_peak(trace)
    return bytes_, PHASES[trace.event_phases[event]], live_by_category(trace, event)


@pytest.mark.slow
def test_adam_holds_five_times_the_weights(config_of):
    # Weights, gradients, two moments, and the square root of the second moment as the foreach form's one temporary.
    bytes_, phase, parts = peak(built(WIDE), config_of())
    assert phase == "optimizer"
    assert (parts["parameters"], parts["gradients"], parts["optimizer_state"]) == (W, W, 2 * W)
    assert parts["ema"] == 0
    # Beside them: output and loss of one sample, scalars of 512 bytes each.
    assert 5 * W <= bytes_ <= 5 * W + 16 * KIB


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "copies"), [("sgd", 1), ("adam", 0), ("adamw", 0)])
def test_weight_decay_is_in_a_copy_of_the_gradients(config_of, kind, copies):
    # g + decay x w is a list of tensors of its own. Adam lets it go before it makes its temporary, which takes the
    # same; decoupled decay shrinks the weights in place.
    without, with_decay = (
        peak(built(WIDE), config_of(optimizer={"type": kind, "weight_decay": decay}))[0]
        for decay in (0.0, 0.1)
    )
    # Without decay SGD's peak is the end of the backward pass, with activations of one sample.
    assert with_decay - without == pytest.approx(copies * W, abs=32 * KIB)


@pytest.mark.slow
def test_a_moving_average_is_one_more_copy(config_of):
    without, _, _ = peak(built(WIDE), config_of())
    with_average, _, parts = peak(built(WIDE), config_of(ema_decay=0.999))
    assert parts["ema"] == W
    assert with_average - without == W


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("momentum", "buffers"), [(0.0, 0), (0.9, 1)])
def test_sgd_holds_no_moments_and_needs_no_temporary(config_of, momentum, buffers):
    # Adam's two moments and its temporary against a momentum buffer or nothing. With nothing, the last moments of the
    # backward pass, with the activations of one sample, are the peak.
    adam, _, _ = peak(built(WIDE), config_of())
    sgd, _, parts = peak(built(WIDE), config_of(optimizer={"type": "sgd", "momentum": momentum}))
    assert parts["optimizer_state"] == buffers * W
    assert adam - sgd == pytest.approx((3 - buffers) * W, abs=32 * KIB)


@pytest.mark.slow
def test_a_frozen_layer_has_neither_gradient_nor_moments(config_of):
    network = built(WIDE)
    network.module.first.weight.requires_grad_(False)
    frozen, phase, parts = peak(network, config_of())
    assert phase == "optimizer"
    assert (parts["parameters"], parts["gradients"], parts["optimizer_state"]) == (W, HALF, 2 * HALF)
    # Gradient, two moments and the temporary of half the weights are gone.
    assert peak(built(WIDE), config_of())[0] - frozen == 4 * HALF


@pytest.mark.slow
def test_tied_weights_are_held_once(config_of):
    tied, phase, parts = peak(built(WIDE, tied=True), config_of(ema_decay=0.999))
    assert (parts["parameters"], parts["ema"], parts["optimizer_state"]) == (HALF, HALF, 2 * HALF)
    # The peak moves to the backward pass: the gradients of both uses and their sum are there at once, 7 halves. The
    # optimizer's step would be 6: weights, average, two moments, the gradient, and the temporary.
    assert phase == "backward"
    assert 7 * HALF <= tied <= 7 * HALF + 32 * KIB
    assert peak(built(WIDE), config_of(ema_decay=0.999))[0] == pytest.approx(6 * W, abs=16 * KIB)


class LossWithNetwork(nn.Module):
    """Mean square of a frozen layer's output, as a perceptual loss has one."""

    def __init__(self):
        super().__init__()
        self.network = nn.Linear(WIDE, WIDE, bias=False).requires_grad_(False)

    def forward(self, output, target=None):
        total = self.network(output).square().mean()
        return LossValue(total, {"perceptual": total.detach()})


@pytest.mark.slow
def test_a_loss_network_is_held_from_the_start(config_of, monkeypatch):
    without, _, _ = peak(built(WIDE), config_of())
    monkeypatch.setattr(traced_step, "build_loss", lambda config, **options: LossWithNetwork())
    with_network, phase, parts = peak(built(WIDE), config_of())
    assert phase == "optimizer"
    assert parts["loss_networks"] == HALF
    assert with_network - without == HALF


@pytest.mark.slow
def test_a_second_micro_batch_finds_the_gradients_of_the_first(config_of):
    once, phase, parts = peak(built(NARROW), config_of(), NARROW_BATCH)
    assert phase == "backward"
    assert parts["gradients"] == 0
    twice, phase, parts = peak(built(NARROW), config_of(accumulate=2), NARROW_BATCH)
    assert phase == "backward"
    # The gradients, and the loss of the first micro-batch, a scalar of 512 bytes.
    assert parts["gradients"] == NARROW_WEIGHTS
    assert twice - once == NARROW_WEIGHTS + 512


@pytest.mark.slow
def test_accumulation_changes_nothing_where_the_optimizer_is_the_peak(config_of):
    once, _, _ = peak(built(WIDE), config_of())
    twice, phase, _ = peak(built(WIDE), config_of(accumulate=2))
    assert phase == "optimizer"
    assert twice - once == pytest.approx(0, abs=8 * KIB)  # scalars


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_set_to_zero_instead_of_none_are_there_in_the_forward_pass(set_to_none):
    # Any loop is traced as it is; training_step's own option is below.
    network = TwoLayers(NARROW).to("meta")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with StorageTrace() as trace:
        for parameter in network.parameters():
            trace.enter(parameter, "module.to(device)")
        for _ in range(2):
            trace.start_step()
            trace.phase = "forward"
            loss = network(torch.empty(NARROW_BATCH, NARROW, device="meta")).square().mean()
            trace.phase = "backward"
            loss.backward()
            trace.phase = "optimizer"
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            del loss
        recorded = trace.finish(NARROW_BATCH, [])
    second = recorded.step_starts[1]
    before = recorded.live_bytes(512)[second - 1]
    assert before == NARROW_WEIGHTS * (1 if set_to_none else 2)
    first_peak, _ = live_peak(recorded, 0, second)
    second_peak, _ = live_peak(recorded, second)
    # The peak is before the first gradient is made, so that those kept from the last step come on top.
    assert second_peak - first_peak == (0 if set_to_none else NARROW_WEIGHTS)


SIDE, CHANNELS, HEADS, TOKENS = 16, 24, 2, 64


@pytest.fixture
def saved_bytes(tmp_path):
    """Saved activations at the end of the forward pass of a SwinMR of one block, as a number of float32."""

    def measure(checkpointing, batch_size):
        file = tmp_path / "swinmr.json"
        model = {
            "net_type": "swinmr",
            "img_size": SIDE,
            "depths": [1],
            "num_heads": [HEADS],
            "embed_dim": CHANNELS,
            "drop_path_rate": 0.0,
        }
        training = {"gradient_checkpointing": checkpointing, "ema_decay": 0}
        file.write_text(json.dumps({"model": model, "training": training, "data": {"use_patches": False}}))
        config = load_config(file).config
        network = build_model(config)
        network.module.attention = "matmul"
        trace = trace_training(network, config, batch_size, as_on_cuda=False, validation=False)
        second = trace.step_starts[1]
        forward = [
            event
            for event in range(second, len(trace.events))
            if trace.event_phases[event] == PHASES.index("forward")
        ]
        return live_by_category(trace, forward[-1])["saved_activations"]

    return measure


@pytest.mark.sampled(1)
@pytest.mark.parametrize("batch_size", [2, 4])
def test_checkpointing_drops_what_it_says(saved_bytes, batch_size):
    # In numbers per token, C channels, h heads, windows of N tokens, 2 C hidden channels. A block saves its input in
    # window order (C), its norm (C) and the norm's mean and inverse deviation (2), queries, keys and values (3 C), the
    # attention probabilities (h N), what attention returns (C), its sum with the input (C), the second norm (C) and
    # its statistics (2), the hidden layer before and after GELU (2 C each), and its result in image order, which the
    # convolution takes (C): 13 C + 4 + h N.
    tokens = batch_size * SIDE * SIDE
    none, light, full = (saved_bytes(setting, batch_size) for setting in ("none", "light", "full"))
    # Light: both norms with their statistics, the probabilities, and GELU's result are computed again; for the
    # probabilities the position bias, h N^2 numbers, is kept.
    recomputed = tokens * (4 * CHANNELS + 4 + HEADS * TOKENS)
    assert none - light == (recomputed - HEADS * TOKENS**2) * 4
    # Full: all of the group is; its input, which nobody else would save, is kept instead.
    assert none - full == tokens * (12 * CHANNELS + 4 + HEADS * TOKENS) * 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("when", "set_to_none", "gradients"),
    [
        # Of the last step, alive when the activations of the forward pass are: 0 where they were let go before.
        ("after_step", True, 0),
        ("before_forward", True, 0),
        ("before_backward", True, NARROW_WEIGHTS),
        ("after_step", False, NARROW_WEIGHTS),
    ],
)
def test_where_gradients_are_let_go(config_of, when, set_to_none, gradients):
    config = config_of(zero_grad=when, set_to_none=set_to_none)
    trace = trace_training(built(NARROW), config, NARROW_BATCH, validation=False)
    second = trace.step_starts[1]
    forward = [
        position
        for position in range(second, len(trace.events))
        if PHASES[trace.event_phases[position]] == "forward"
    ]
    assert live_by_category(trace, forward[-1])["gradients"] == gradients


@pytest.mark.slow
def test_trainable_patterns_freeze_the_rest(config_of):
    network = built(WIDE)
    freeze(network.module, ["second.*"])
    frozen, _, parts = peak(network, config_of())
    assert (parts["gradients"], parts["optimizer_state"]) == (HALF, 2 * HALF)
    assert peak(built(WIDE), config_of())[0] - frozen == 4 * HALF
    with pytest.raises(ModelError, match=r"no parameter is called 'third.\*'.*first.weight"):
        freeze(network.module, ["third.*"])
    freeze(network.module, None)
    assert [p.requires_grad for p in network.module.parameters()] == [False, True]
