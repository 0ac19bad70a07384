"""`system.attention`: the kernel that is allowed is the one that runs and the one that is predicted."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_inference, trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.training.step.attention_kernels import allow_attention_kernels, attention_kernels

BATCH, HEADS, TOKENS, WIDTH = 2, 4, 48, 32


class Attention(nn.Module):
    """(B, tokens, heads x width) to the same, by one projection and the fused attention."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)

    def forward(self, x):
        query, key, value = self.project(x).reshape(len(x), TOKENS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)


def setting(attention, precision=False):
    shape = (TOKENS, HEADS * WIDTH)
    inputs = (InputSpec(shape),)
    built = BuiltModel(
        "custom", Attention(), {"inference": inputs, "training": inputs, "cross_check": inputs}
    )
    model = {"net_type": "custom", "target": "torch.nn:Identity", "input_shapes": [list(shape)]}
    system = {"attention": attention, "mixed_precision": precision}
    return built, config_from_dict({"model": model, "system": system})


def kernels(trace):
    return {
        kernel
        for kernel in ("flash", "efficient")
        if any(f"_scaled_dot_product_{kernel}_attention.default" in name for name in trace.operator_names)
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("attention", "precision", "expected"),
    [
        ("auto", False, {"efficient"}),
        ("auto", "bf16", {"flash"}),
        ("efficient", "bf16", {"efficient"}),
        ("flash", "bf16", {"flash"}),
        ("math", False, set()),
        ("math", "bf16", set()),
    ],
)
def test_the_prediction_follows_the_key(attention, precision, expected):
    built, config = setting(attention, precision)
    assert kernels(trace_inference(built, config, BATCH)) == expected
    trace = trace_training(built, config, BATCH, validation=False)
    assert kernels(trace) == expected
    # The plain way keeps the probabilities, a number for each pair of tokens in each head; the kernels do not.
    size = BATCH * HEADS * TOKENS * TOKENS * (2 if precision else 4)
    assert (size in trace.sizes.tolist()) == (attention == "math")


def test_what_the_kernel_cannot_compute_is_refused_in_one_line():
    built, config = setting("flash")
    with pytest.raises(
        RuntimeError, match=r"flash attention alone is allowed \(system.attention\)"
    ) as caught:
        trace_training(built, config, BATCH)
    assert "torch.float32" in str(caught.value)
    assert str(caught.value).endswith("efficient, math would")
    assert "\n" not in str(caught.value)


def flags():
    cuda = torch.backends.cuda
    return (
        cuda.math_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.flash_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )


@pytest.fixture
def flags_restored():
    cuda, before = torch.backends.cuda, flags()
    yield
    enable = (
        cuda.enable_math_sdp,
        cuda.enable_mem_efficient_sdp,
        cuda.enable_flash_sdp,
        cuda.enable_cudnn_sdp,
    )
    for switch, value in zip(enable, before, strict=True):
        switch(value)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("math", (1, 0, 0, 0)), ("efficient", (0, 1, 0, 0)), ("flash", (0, 0, 1, 0)), ("auto", (1, 1, 1, 1))],
)
def test_what_a_process_is_allowed(flags_restored, name, allowed):
    with attention_kernels(name):
        assert flags() == allowed
    assert flags() == (1, 1, 1, 1)
    allow_attention_kernels(name)
    assert flags() == allowed


def test_a_kernel_that_a_cpu_does_not_have_is_refused(flags_restored):
    with pytest.raises(ModelError, match='"efficient" is a kernel of CUDA'):
        allow_attention_kernels("efficient", "cpu")
    allow_attention_kernels("flash", "cpu")
    query = torch.ones(1, 2, 8, 16)
    assert F.scaled_dot_product_attention(query, query, query).shape == query.shape


def test_another_kernel_is_another_fingerprint_and_auto_none():
    prints = {memory_fingerprint(setting(name)[1]) for name in ("auto", "math", "efficient", "flash")}
    assert len(prints) == 4
    config = setting("auto")[1]
    assert memory_fingerprint(config) == memory_fingerprint(
        config.model_copy(update={"system": config.system.model_copy(update={"threads": 2})})
    )
