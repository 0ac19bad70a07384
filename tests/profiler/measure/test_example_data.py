"""Made-up batches go the way of real ones: their targets, the calls of a validation, and the memory of both."""

import copy
import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.denoisers.unet_denoiser import UNetDenoiser
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure import example_data
from swinmr_profiling.profiler.measure.example_data import (
    ExampleData,
    denoiser_preparation,
    output_shape,
    validation_shape,
)
from swinmr_profiling.profiler.measure.training.training_probe import probe_training
from swinmr_profiling.profiler.prediction.predict import predict_setting
from swinmr_profiling.profiler.prediction.settings import TrainingSetting
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES
from swinmr_profiling.profiler.prediction.trace.trace_cache import TRACED_ROOMS
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.run.steps.prediction_steps import assumptions
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.run.loop import TrainingRun
from swinmr_profiling.training.run.stopping import StopRequest
from swinmr_profiling.training.setup.step_memory import LiveBytes
from swinmr_profiling.training.step.example_batches import ExampleSlices
from swinmr_profiling.training.step.losses import WeightedTarget, build_loss
from swinmr_profiling.training.step.training_step import build_settings, training_step
from tests.conftest import REPOSITORY
from tests.profiler.measure.test_training_probe import CountedMemory
from tests.training.conftest import TINY_RUN, merged

CPU, META = torch.device("cpu"), torch.device("meta")
# Of whole images of 64 x 64, real and imaginary part, 4 at once in validation.
GUIDED_UNET = {
    "model": {
        "net_type": "unet_denoiser",
        "img_size": 64,
        "in_chans": 2,
        "base_channels": 16,
        "channel_multipliers": [1, 2, 2],
        "num_res_blocks": 1,
        "attention_resolutions": [16],
        "head_channels": 16,
        "num_groups": 8,
    },
    "data.val_batch_size": 4,
    "data.phantom.val_slices": 4,
    "training.diffusion.condition_dropout": 0.1,
    "evaluation.sampling": {"guidance": 3.0, "validation_steps": 10},
}
IMAGE_BYTES = 2 * 64 * 64 * 4


def config_of(changes=None, base=GUIDED_UNET):
    return config_from_dict(merged(TINY_RUN, copy.deepcopy({**base, **(changes or {})})))


def classifier(classes=1000, width=64, **loss):
    """A linear layer of 64 numbers to 1000 classes, and its config."""
    config = config_from_dict(
        {
            "model": {"net_type": "custom", "target": "a:B", "input_shapes": [[width]]},
            "training": {"loss": loss, "ema_decay": 0},
        }
    )
    specs = (InputSpec((width,)),)
    module = nn.Linear(width, classes, bias=False)
    return BuiltModel("custom", module, {"inference": specs, "training": specs}), config


def inputs_bytes(trace):
    """What the second step makes as its inputs."""
    start, end = trace.step_starts[1:3]
    made = [event - 1 for event in trace.events[start:end].tolist() if event > 0]
    return [int(trace.sizes[n]) for n in made if CATEGORIES[trace.categories[n]] == "inputs"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("batch_size", [2, 5])
def test_cross_entropy_has_one_class_number_a_sample(batch_size):
    """64 numbers of 4 bytes and one of 8 a sample; logits in their place would be 1000 numbers of 4 bytes."""
    built, config = classifier(type="cross_entropy")
    trace = trace_training(built, config, batch_size)
    assert inputs_bytes(trace) == [batch_size * 64 * 4, batch_size * 8]
    micro_batch = next(ExampleData(built, config, build_loss(config), CPU).micro_batches(batch_size))
    assert (micro_batch.target.shape, micro_batch.target.dtype) == ((batch_size,), torch.int64)


def test_cross_entropy_of_a_map_has_a_class_number_a_pixel():
    specs = (InputSpec((3, 8, 8)),)
    _, config = classifier(type="cross_entropy")
    built = BuiltModel("custom", nn.Conv2d(3, 7, 1), {"inference": specs, "training": specs})
    micro_batch = next(ExampleData(built, config, build_loss(config), CPU).micro_batches(2))
    assert micro_batch.target.shape == (2, 8, 8)


def test_cross_entropy_is_probed_with_the_same_target(monkeypatch):
    built, config = classifier(classes=10, type="cross_entropy")
    nn.init.zeros_(built.module.weight)
    losses = []

    def step(state, settings, batches, check):
        outcome = training_step(state, settings, batches, check)
        losses.append(float(outcome.loss))
        return outcome

    monkeypatch.setattr("swinmr_profiling.profiler.measure.training.training_probe.training_step", step)
    probe_training(built, config, CPU, 4, 3, CountedMemory())
    # Logits of 0 for 10 classes; against ten numbers of 0 as probabilities it would be 0.
    assert losses[0] == pytest.approx(math.log(10))


@pytest.mark.slow
def test_a_loss_without_a_target_finds_the_image_that_the_loop_moves():
    """train.py moves an input and a target of its shape, and so many bytes are there, whatever the output is."""
    built, config = classifier(type="auto")
    assert inputs_bytes(trace_training(built, config, 2)) == [2 * 64 * 4, 2 * 64 * 4]
    built, config = classifier(type="mse")
    assert inputs_bytes(trace_training(built, config, 2)) == [2 * 64 * 4, 2 * 1000 * 4]


def test_a_denoisers_micro_batch_is_the_loops():
    config = config_of()
    built = build_model(config)
    made = next(ExampleData(built, config, build_loss(config), META).micro_batches(3))
    assert isinstance(made.target, WeightedTarget)
    # Patches of 16: the noisy image with its condition, time steps, what is predicted, and a weight a sample.
    tensors = (*made.inputs, *made.target)
    assert [tuple(x.shape) for x in tensors] == [(3, 4, 16, 16), (3,), (3, 2, 16, 16), (3,)]
    assert {x.device.type for x in tensors} == {"meta"}


@pytest.mark.slow
def test_further_inputs_go_beside_the_image():
    specs = (InputSpec((3, 8, 8)), InputSpec((), "int64"))
    _, config = classifier(type="auto")

    class Takes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(3, 3, 1)

        def forward(self, image, step):
            return self.layer(image) + step[:, None, None, None]

    built = BuiltModel("custom", Takes(), {"inference": specs, "training": specs})
    made = next(ExampleData(built, config, build_loss(config), META).micro_batches(2))
    assert [tuple(x.shape) for x in made.inputs] == [(2, 3, 8, 8), (2,)]
    assert trace_training(built, config, 2).batch_size == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("only_profiled", [{"num_classes": 3}, {"out_chans": 2}])
def test_a_denoiser_that_can_only_be_profiled_is_still_traced(only_profiled):
    model = {
        "net_type": "dit_denoiser",
        "img_size": 32,
        "embed_dim": 16,
        "num_heads": 2,
        "depth": 1,
        "in_chans": 1,
    }
    config = config_of(base={"model": {**model, **only_profiled}})
    built = build_model(config)
    assert denoiser_preparation(built, config) is None
    trace = trace_training(built, config, 2)
    assert len(trace.step_starts) == 3
    assert validation_shape(built, config)[0] == 1


def calls_of(run, monkeypatch):
    """Batch sizes of the network's calls in evaluation mode, without gradients."""
    calls, real = [], UNetDenoiser.forward

    def forward(self, x, timesteps):
        if not self.training:
            calls.append(len(x))
        return real(self, x, timesteps)

    with monkeypatch.context() as patch:
        patch.setattr(UNetDenoiser, "forward", forward)
        run()
    return calls


def loop_run(config, tmp_path):
    paths = config.paths.model_copy(update={"root": str(tmp_path)})
    return TrainingRun(config.model_copy(update={"paths": paths}), World(0, 1, CPU), StopRequest())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "loop"),
    [
        ({}, {4: 4, 8: 5}),
        ({"evaluation.sampling.guidance": 1.0}, {4: 9}),
        ({"evaluation.sampling.validation_steps": 0}, {4: 4}),
    ],
)
def test_validation_calls_the_network_as_the_loop_does(changes, loop, monkeypatch, tmp_path):
    """Four time steps, then every sampling step, of twice the batch with guidance; no more than 3 steps differ."""
    small = {
        "model.img_size": 16,
        "model.attention_resolutions": [4],
        "evaluation.sampling.validation_steps": 5,
    }
    config = config_of({**small, **changes})
    built = build_model(config)
    run = loop_run(config, tmp_path)
    assert Counter(calls_of(lambda: run._validate(None), monkeypatch)) == loop
    few = {4: 4, **({8: 3} if 8 in loop else {4: min(loop[4], 4 + 3)})}
    for replayed in (
        lambda: trace_training(built, config, 1),
        lambda: probe_training(built, config, CPU, 1, 3, CountedMemory()),
    ):
        # Where a shape of the output was looked up, batch 1 was called.
        found = Counter(size for size in calls_of(replayed, monkeypatch) if size != 1)
        assert found == few
    assert validation_shape(built, config) == [max(loop), 4, 16, 16]


@pytest.fixture
def plain_operators(monkeypatch):
    """Attention as operators of their own, and no inference mode, in which a mode sees composed operators as one."""
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)
    with sdpa_kernel(SDPBackend.MATH):
        yield


def predicted_rise(config):
    """Most live bytes of the traced validation above what is there when it begins."""
    trace = trace_training(build_model(config), config, 1, as_on_cuda=False)
    live, start = trace.live_bytes(), trace.step_starts[-1]
    return int(live[start:].max() - live[start - 1])


def measured_rise(config, tmp_path):
    """The same of the loop's own validation, on a CPU, by another tracker."""
    run = loop_run(config, tmp_path)
    batches = run._stream()
    for _ in range(2):
        training_step(run.state, run.settings, batches)
    with LiveBytes() as mode:
        run._validate(None)
    return mode.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        {"guidance": 3.0, "validation_steps": 5},
        {"guidance": 3.0, "validation_steps": 4, "sampler": "ancestral", "data_consistency": False},
        {"guidance": 1.0, "validation_steps": 4},
        {"validation_steps": 0},
    ],
)
def test_the_memory_of_validation_is_that_of_the_loop(sampling, plain_operators, tmp_path):
    """On a CPU the loader's batch counts too, and what is read of each slice: at most three images a sample."""
    config = config_of({"evaluation.sampling": sampling})
    predicted, measured = predicted_rise(config), measured_rise(config, tmp_path)
    print(f"validation {sampling}: predicted {predicted}, measured {measured}, {measured / predicted:.4f}")
    assert predicted <= measured <= predicted + 3 * 4 * IMAGE_BYTES


@pytest.mark.slow
def test_guidance_doubles_what_validation_takes(plain_operators):
    """A call of 8 in place of one of 4: all activations are twice as many, what the sampler holds is not."""
    guided, plain = (
        predicted_rise(config_of({"evaluation.sampling": {"guidance": g, "validation_steps": 10}}))
        for g in (3.0, 1.0)
    )
    assert 1.9 < guided / plain < 2


@pytest.mark.slow
def test_the_profile_states_the_doubled_call():
    config = config_of()
    setting = TrainingSetting("fp32", "none", (16, 16))
    entry = predict_setting(build_model(config), config, setting, "mse of epsilon")
    assert entry.validation.input_shape == [8, 4, 64, 64]
    plain = config_of({"evaluation.sampling": {"guidance": 1.0, "validation_steps": 10}})
    other = predict_setting(build_model(plain), plain, setting, "mse of epsilon")
    assert other.validation.input_shape == [4, 4, 64, 64]
    assert entry.validation.reserved_bytes > other.validation.reserved_bytes
    assert entry.sizes["1"].reserved_bytes > other.sizes["1"].reserved_bytes


@pytest.mark.parametrize("coils", [1, 3])
def test_k_space_of_the_phantom_has_its_coils(coils):
    slices = ExampleSlices(config_of({"data.phantom.coils": coils}), (64, 32))
    degraded, mask = slices.degraded(slices.locate(7)[1])
    assert degraded.measured.shape == degraded.coil_maps.shape == (coils, 64, 32)
    assert mask.shape == (64, 32)
    files = ExampleSlices(config_of({"data.source": "packaged", "data.phantom.coils": coils}), (64, 32))
    degraded, _ = files.degraded(0)
    assert (degraded.measured.shape, degraded.coil_maps) == ((1, 64, 32), None)


def test_validation_leaves_no_image_on_the_device():
    """What a batch gave is on the CPU, so that the next batch finds the device as the first one did."""
    raw = merged(TINY_RUN, {})
    config = config_from_dict(raw)
    built = build_model(config)
    loss = build_loss(config)
    result = ExampleData(built, config, loss, META).validation(build_settings(config, "cpu"))
    with torch.no_grad():
        value, images = result(built.module.to("meta").eval())
    assert (value, images.device.type, tuple(images.shape)) == (0.0, "cpu", (1, 1, 32, 32))


def test_what_a_prediction_of_validation_takes_for_granted():
    """Data on disk may have other sizes and more coils than the config says; the phantom has not."""
    sizes, coils = "images of the config's size, whatever the files hold", "one coil's, of the image's size"
    cases = {
        "phantom": ({}, False, False),
        "files": ({"data.source": "packaged"}, True, True),
        "no k-space": (
            {"data.source": "packaged", "evaluation.sampling.data_consistency": False},
            True,
            False,
        ),
        "no images": ({"data.source": "packaged", "evaluation.sampling.validation_steps": 0}, True, False),
    }
    for name, (changes, says_sizes, says_coils) in cases.items():
        said = " ".join(assumptions(config_of(changes)))
        assert (sizes in said, coils in said) == (says_sizes, says_coils), name
    deterministic = "deterministic algorithms need what the others need"
    assert deterministic in assumptions(config_of({"system.deterministic": True}))
    assert deterministic not in assumptions(config_of())


def test_traces_on_disk_are_of_this_very_code():
    """What traced_step.py takes from the profiler is hashed into the names of traces."""
    source = (REPOSITORY / "profiler/prediction/trace/traced_step.py").read_text()
    used = {
        line.split()[1].removeprefix("swinmr_profiling.").replace(".", "/")
        for line in source.splitlines()
        if line.startswith("from swinmr_profiling.profiler.")
    }
    assert "profiler/measure/example_data" in used
    assert all(any(f"{module}.py".startswith(room) for room in TRACED_ROOMS) for module in used)


def test_an_output_shape_is_looked_up_once_for_settings_that_do_not_change_it(monkeypatch):
    asked = []

    def looked_up(built, batch_size, which):
        asked.append((batch_size, which))
        return output_shape(built, batch_size, which)

    monkeypatch.setattr(example_data, "output_shape", looked_up)
    known = {}

    def shape(batch_size=2, **changes):
        config = config_of({name.replace("__", "."): value for name, value in changes.items()}, {})
        built = build_model(config)
        data = ExampleData(built, config, build_loss(config), META, known)
        return tuple(data.batch(batch_size)["target"].shape)

    assert shape() == (2, 1, 16, 16)
    for changes in (
        {"training__gradient_checkpointing": "full"},
        {"training__on_host": ["activations"]},
        {"training__accumulate": 2},
        {"system__channels_last": True},
        {"system__mixed_precision": "bf16"},
        {"data__batch_size": 1, "data__val_batch_size": 2},
    ):
        assert shape(**changes) == (2, 1, 16, 16)
    assert asked == [(2, "training")]
    # What does change it is looked up anew.
    assert shape(3) == (3, 1, 16, 16)
    assert shape(data__patch_size=24) == (2, 1, 24, 24)
    assert shape(data__patch_size=24, training__gradient_checkpointing="light") == (2, 1, 24, 24)
    assert asked == [(2, "training"), (3, "training"), (2, "training")]
