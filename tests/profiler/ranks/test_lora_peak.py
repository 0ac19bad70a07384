"""The peak of training low-rank adapters, summed by hand; and what `training.lora` refuses."""

import numpy as np
import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.lora import add_adapters, merged_state, with_adapters
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from tests.training.conftest import TINY_RUN, merged

WIDTH, RANK, BATCH = 512, 4, 64


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


def lora(**changes):
    training = {"lora": {"rank": RANK, "targets": ["first", "second"], **changes}}
    model = {"net_type": "custom", "target": "somewhere:TwoLayers", "input_shapes": [[WIDTH]]}
    base = {"ema_decay": 0.0, "loss": {"type": "mse"}, "optimizer": {"type": "adamw"}}
    return config_from_dict(
        {"model": model, "data": {"use_patches": False}, "training": {**base, **training}}
    )


def test_peak_of_two_layers():
    """In fp32: two frozen weights W; of each layer an A and a B of `rank x width`, and two states of each; activations
    of `batch x width` (a) and of `batch x rank` (h).

    The peak is in the second layer's backward pass, where the two gradients of its input meet: 6 a (the input, which
    the first adapter has kept, the target, the first layer's result, the gradient of the output, that of the adapter's
    branch and that of the weight's), the gradients of its A and B, and 2 h (the first layer's, which its B has kept,
    and the gradient of the second one's).
    """
    config = lora()
    network = TwoLayers()
    add_adapters(network, config.training.lora, None)
    inputs = (InputSpec((WIDTH,)),)
    built = BuiltModel("custom", network, dict.fromkeys(("inference", "training", "cross_check"), inputs))
    trace = trace_training(built, config, BATCH, as_on_cuda=False, validation=False)
    sizes = np.where(trace.sizes > 64, trace.sizes, 0)[np.abs(trace.events) - 1]
    live = np.cumsum(np.where(trace.events > 0, sizes, -sizes))[trace.step_starts[1] :]
    weights, adapters = 2 * WIDTH * WIDTH * 4, 4 * RANK * WIDTH * 4
    a, h = BATCH * WIDTH * 4, BATCH * RANK * 4
    kept = weights + adapters + 2 * adapters
    assert live[-1] == kept
    assert live.max() == kept + 6 * a + 2 * RANK * WIDTH * 4 + 2 * h


def test_adapters_alone_are_trained_and_merge():
    config = config_from_dict(merged(TINY_RUN, {"training.lora": {"rank": 2, "targets": ["qkv", "proj"]}}))
    network = build_model(config).module
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    # Two blocks of width 8: A 2 x 8 and B 24 x 2 of qkv, A and B of 2 x 8 of proj.
    assert sum(p.numel() for p in trained.values()) == 2 * (16 + 48 + 16 + 16)
    assert all(".lora_" in name for name in trained)
    image = torch.randn(1, 1, 32, 32)
    network.train()
    network(image).sum().backward()
    assert all(p.grad is not None for p in trained.values())
    assert all(p.grad is None for p in network.parameters() if not p.requires_grad)
    with torch.no_grad():
        for name, p in trained.items():
            if "lora_B" in name:
                p.normal_()
    plain = build_model(config_from_dict(TINY_RUN)).module.eval()
    plain.load_state_dict(merged_state(network))
    assert torch.allclose(plain(image), network.eval()(image), atol=1e-5)


def test_plain_weights_are_taken_for_the_base():
    config = config_from_dict(merged(TINY_RUN, {"training.lora": {"rank": 2, "targets": ["qkv"]}}))
    plain = build_model(config_from_dict(TINY_RUN)).module
    network = build_model(config).module
    network.load_state_dict(with_adapters(network, plain.state_dict()))
    image = torch.randn(1, 1, 32, 32)
    assert torch.allclose(network.eval()(image), plain.eval()(image), atol=1e-5)


def test_parameters_that_trainable_names_are_trained_beside():
    config = config_from_dict(
        merged(
            TINY_RUN,
            {"training.lora": {"rank": 2, "targets": ["qkv"]}, "training.trainable": ["*.norm1.bias"]},
        )
    )
    trained = [name for name, p in build_model(config).module.named_parameters() if p.requires_grad]
    assert {name.split(".")[-1] if "lora" not in name else "lora" for name in trained} == {"lora", "bias"}


@pytest.mark.parametrize(
    ("targets", "told"),
    [(["qvk"], "no layer's name ends with 'qvk'; its linear layers are"), (["norm1"], "training.lora: ")],
)
def test_targets_that_cannot_be(targets, told):
    config = config_from_dict(merged(TINY_RUN, {"training.lora": {"targets": targets}}))
    with pytest.raises(ModelError, match=told):
        build_model(config)


def test_rank_and_targets_change_the_memory_fingerprint_and_alpha_does_not():
    prints = {memory_fingerprint(lora(**changes)) for changes in ({}, {"rank": 8}, {"targets": ["first"]})}
    assert len(prints) == 3
    assert memory_fingerprint(lora(alpha=16.0)) == memory_fingerprint(lora())
