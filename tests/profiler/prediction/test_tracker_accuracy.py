"""Traces without data against real runs on the CPU, against torch's MemTracker, and against synthesised ones."""

import gc
import json
from functools import cache

import pytest
import torch
from diffusers import UNet2DModel
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_pre_hook

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.prediction.replay import live_peak
from swinmr_profiling.profiler.prediction.trace.affine_trace import align
from swinmr_profiling.profiler.prediction.trace.traced_step import (
    TRACED_STEPS,
    copy_of,
    trace_training,
)
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import (
    MicroBatch,
    build_settings,
    build_state,
    training_step,
)

SWINMR = {
    "net_type": "swinmr",
    "img_size": 32,
    "depths": [2, 2],
    "num_heads": [6, 6],
    "embed_dim": 60,
}
VIT = {
    "net_type": "timm",
    "name": "vit_tiny_patch16_224",
    "img_size": 64,
    "num_classes": 10,
    "kwargs": {"depth": 4},
}
UNET = {"net_type": "custom", "target": "diffusers:UNet2DModel", "input_shapes": [[3, 32, 32], []]}


def unet():
    network = UNet2DModel(
        sample_size=32,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
    )
    inputs = (InputSpec((3, 32, 32)), InputSpec((), "int64"))
    return BuiltModel("custom", network, {"inference": inputs, "training": inputs, "cross_check": inputs})


@pytest.fixture(scope="module")
def built_of(tmp_path_factory):
    """Builds one of the three networks and its config, once."""

    @cache
    def build(name):
        file = tmp_path_factory.mktemp(name) / "config.json"
        content = {
            "model": {"swinmr": SWINMR, "vit": VIT, "unet": UNET}[name],
            "data": {"use_patches": False},
        }
        file.write_text(json.dumps(content))
        config = load_config(file).config
        built = unet() if name == "unet" else build_model(config)
        if name == "swinmr":
            # The CPU would take another way than the meta device.
            built.module.attention = "matmul"
        return built, config

    return build


@pytest.fixture(autouse=True)
def _plain_attention():
    """Scaled dot product attention as operators of their own: the CPU has a fused kernel, the meta device none."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def show(network, batch_size, over, ratio):
    """A line of scripts/benchmark_memory.py."""
    print(f"ratio: {network:8} batch {batch_size}  over {over:10} {ratio:.5f}")


def peak_bytes(trace):
    return int(trace.live_bytes().max())


NETWORKS = ("swinmr", "unet", "vit")
# A UNet's batch of 1 is a case of its own, below.
CASES = [
    (network, batch_size)
    for network in NETWORKS
    for batch_size in ((2, 3, 4) if network == "unet" else (1, 2, 4))
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("network", "batch_size"), CASES)
def test_live_bytes_are_those_of_a_real_run(built_of, network, batch_size):
    built, config = built_of(network)
    predicted = trace_training(built, config, batch_size, as_on_cuda=False)
    real = trace_training(built, config, batch_size, as_on_cuda=False, device="cpu")
    show(network, batch_size, "real run", peak_bytes(predicted) / peak_bytes(real))
    assert peak_bytes(predicted) == pytest.approx(peak_bytes(real), rel=0.002)
    # The same at the end of each step, where parameters, states and the average are left.
    for trace_starts in zip(predicted.step_starts, real.step_starts, strict=True):
        ends = [t.live_bytes()[start - 1] for t, start in zip((predicted, real), trace_starts, strict=True)]
        assert ends[0] == pytest.approx(ends[1], rel=0.002)


@pytest.mark.slow
def test_one_sample_of_a_unet_is_predicted_slightly_high(built_of):
    # With a batch of 1 a convolution's result counts as channels-last on the meta device and not on the CPU, so that
    # one activation more is made contiguous: 32 x 32 x 32 numbers, 131,072 bytes.
    built, config = built_of("unet")
    predicted = peak_bytes(trace_training(built, config, 1, as_on_cuda=False))
    real = peak_bytes(trace_training(built, config, 1, as_on_cuda=False, device="cpu"))
    assert predicted - real == pytest.approx(
        131_072, abs=1024
    )  # scalars of the optimizer that are on the CPU


@pytest.mark.slow
@pytest.mark.parametrize(("network", "batch_size"), CASES)
def test_live_bytes_are_within_one_percent_of_torchs_own_tracker(built_of, network, batch_size):
    built, config = built_of(network)
    # MemTracker watches through hooks, and SwinMR calls its layers otherwise when they have some.
    hook = register_module_forward_pre_hook(lambda module, arguments: None)
    predicted = trace_training(built, config, batch_size, as_on_cuda=False, validation=False)
    hook.remove()
    module = copy_of(built.module, None)
    tracker = MemTracker()
    tracker.track_external(module)
    with tracker:
        state = build_state(config, module, build_loss(config), total_steps=TRACED_STEPS)
        for _ in range(TRACED_STEPS):
            tracker.reset_mod_stats()
            gc.collect()  # as the trace does between steps
            outcome = training_step(state, build_settings(config, "cpu"), batches(built, batch_size))
    snapshot = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    assert outcome.loss.isfinite()
    show(network, batch_size, "MemTracker", peak_bytes(predicted) / snapshot["Total"])
    assert peak_bytes(predicted) == pytest.approx(snapshot["Total"], rel=0.01)


def batches(built, batch_size):
    """As the loop's data: an image, and a target of its shape; of a classifier a label."""
    while True:
        image = torch.zeros(batch_size, *built.input_shape(1, "training")[1:])
        label = torch.zeros(batch_size, dtype=torch.int64)
        target = label if built.net_type == "timm" else image
        yield MicroBatch(built.example_inputs(batch_size, which="training"), target)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_a_synthesised_batch_size_is_the_directly_traced_one_to_the_byte(built_of, network):
    built, config = built_of(network)
    affine = align(trace_training(built, config, 2), trace_training(built, config, 3))
    for batch_size in (4, 7, 16):
        traced = trace_training(built, config, batch_size)
        assert affine.explains(traced)
        assert live_peak(affine.at(batch_size)) == live_peak(traced)
