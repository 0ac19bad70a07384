"""The probe of a training step: what it runs, what it reports, what it leaves as it was."""

import copy
import weakref
from types import SimpleNamespace

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.example_data import ExampleData, output_shape
from swinmr_profiling.profiler.measure.machine import devices
from swinmr_profiling.profiler.measure.machine.devices import CpuDevice, CudaDevice, open_device
from swinmr_profiling.profiler.measure.measurement import AllocatorTroubles, DeviceMemory, StepPeaks
from swinmr_profiling.profiler.measure.training import training_probe
from swinmr_profiling.profiler.measure.training.training_probe import NoStepError, StepWatch, probe_training
from swinmr_profiling.profiler.record.limits import MIN_TRAINING_STEPS
from swinmr_profiling.training.setup.step_memory import LiveBytes
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.validation import validation
from tests.training.conftest import TINY_RUN, merged

CPU = torch.device("cpu")
MIB = 2**20


class CountedMemory:
    """Bytes of the storages that operators made: a device whose allocator counts exactly what is alive."""

    memory_kind = "bytes of live storages"

    def __init__(self, mode=None, spike_bytes=0):
        self.mode = mode or SimpleNamespace(peak_bytes=0, live_bytes=0)
        self.spike_bytes, self.retries = spike_bytes, 0
        self.calls = []

    def time_ms(self, run):
        self.calls.append("run")
        run()
        # cudnn.benchmark: the first step tries algorithms, and gives their workspaces back.
        if self.calls.count("run") == 1:
            self.mode.peak_bytes = max(self.mode.peak_bytes, self.mode.live_bytes) + self.spike_bytes
        self.retries += 1
        return 10.0 * self.calls.count("run")

    def reset_peak(self):
        self.calls.append("reset")
        self.mode.peak_bytes = self.mode.live_bytes

    def peak(self):
        return StepPeaks(self.mode.peak_bytes, self.mode.peak_bytes - 1, self.mode.peak_bytes + 1)

    def current_bytes(self):
        return self.mode.live_bytes

    def troubles(self):
        return AllocatorTroubles(self.retries, 0)

    def device_memory(self):
        return DeviceMemory(6000, 500, 10000)

    def reserved_bytes(self):
        return 3000

    def process_bytes(self):
        return 3400

    def expandable_segments(self):
        return False


def built_and_config(changes=None):
    config = config_from_dict(merged(TINY_RUN, changes or {}))
    torch.manual_seed(0)
    return build_model(config), config


def probe(changes=None, *, batch_size=2, steps=3, memory=None, **options):
    built, config = built_and_config(changes)
    return probe_training(built, config, CPU, batch_size, steps, memory or CountedMemory(), **options)


def test_what_is_run_and_reported():
    stages = []
    found = probe({"training.accumulate": 2}, on_stage=stages.append)
    assert stages == ["setting up", "step 1 of 3", "step 2 of 3", "step 3 of 3", "validation"]
    assert (found.steps_run, found.step_ms) == (3, [10.0, 20.0, 30.0])
    assert (found.batch_size, found.accumulation) == (2, 2)
    # The patch of 16 is what is trained, the whole image of 32 what is validated.
    assert (found.input_shape, found.patch_size) == ([2, 1, 16, 16], [16, 16])
    assert found.validation_shape == [1, 1, 32, 32]
    assert (found.precision, found.checkpointing, found.loss) == (
        "fp32",
        "none",
        "15 spatial + 0.1 frequency",
    )
    assert found.retries == 3
    assert (found.device_used_bytes, found.device_total_bytes) == (4000, 10000)
    assert (found.process_bytes, found.reserved_at_end_bytes) == (3400, 3000)
    assert found.finite


def test_the_step_is_the_step_of_training(monkeypatch):
    """The very function of the loop, with the config's settings and as many micro-batches as it accumulates."""
    real, seen = training_probe.training_step, []

    def step(state, settings, batches, check):
        seen.append((type(state.optimizer).__name__, state.ema is not None, settings))
        return real(state, settings, batches, check)

    monkeypatch.setattr(training_probe, "training_step", step)
    probe({"training.accumulate": 3, "system.mixed_precision": "bf16", "training.optimizer.type": "adamw"})
    assert len(seen) == 3
    optimizer, averaged, settings = seen[0]
    assert (optimizer, averaged) == ("AdamW", True)
    assert (settings.accumulation, settings.clip_norm, settings.autocast_dtype) == (3, 1.0, torch.bfloat16)


def test_validation_is_of_the_averaged_weights_without_gradients(monkeypatch):
    seen = []
    real = validation.validate_batch

    def validate(network, loss, batch, settings):
        output, value = real(network, loss, batch, settings)
        seen.append((network.training, torch.is_inference_mode_enabled(), tuple(output.shape), network))
        return output, value

    monkeypatch.setattr(validation, "validate_batch", validate)
    states = []
    real_state = training_probe.build_state
    monkeypatch.setattr(
        training_probe, "build_state", lambda *a, **k: states.append(real_state(*a, **k)) or states[-1]
    )
    probe({"data.val_batch_size": 3})
    assert [entry[:3] for entry in seen] == [(False, True, (3, 1, 32, 32))]
    assert seen[0][3] is states[0].ema.module


def test_peaks_of_training_and_validation_are_told_apart():
    memory = CountedMemory()
    probe(memory=memory)
    # Reset after the set-up, after the first step, after the last: three peaks.
    assert memory.calls == ["reset", "run", "reset", "run", "run", "reset"]


def test_a_cpu_is_measured_really():
    found = probe(memory=CpuDevice())
    assert "resident memory" in found.memory_kind
    assert found.cold.allocated_bytes > 50 * MIB
    assert (found.cold.reserved_bytes, found.cold.requested_bytes) == (None, None)
    assert found.warm.allocated_bytes >= found.before_bytes
    assert all(ms > 0 for ms in found.step_ms)
    assert isinstance(open_device(CPU), CpuDevice)


def test_micro_batches_are_held_by_the_step_alone():
    """A loop that keeps the last batch while it makes the next holds two of them; here one is freed first."""
    built, config = built_and_config()
    stream = ExampleData(built, config, build_loss(config), torch.device("meta")).micro_batches(2)
    first = next(stream)
    target = weakref.ref(first.target)
    del first
    assert target() is None


def test_fp16_steps_that_overflow_are_not_counted(monkeypatch):
    """A first loss scale of 2^16 overflows, and an optimizer that makes no step makes no state either."""
    scales = []

    class Scaler:
        """As torch.amp.GradScaler with two overflows at the start."""

        def scale(self, loss):
            return loss

        def unscale_(self, optimizer):
            pass

        def step(self, optimizer):
            scales.append(len(scales))
            if len(scales) > 2:
                optimizer.step()

        def update(self):
            pass

    real = training_probe.build_state

    def build(*arguments, **options):
        state = real(*arguments, **options)
        state.scaler = Scaler()
        return state

    monkeypatch.setattr(training_probe, "build_state", build)
    found = probe()
    assert found.steps_run == 3
    assert len(found.step_ms) == 5


def test_a_network_that_asks_for_values_is_probed_all_the_same():
    class Asks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Conv2d(1, 3, 3, padding=1)

        def forward(self, x):
            return self.layer(x) if float(x.sum()) > 0 else x

    config = config_from_dict(
        {"model": {"net_type": "custom", "target": "a:B", "input_shapes": [[1, 8, 8]]}, "data": {}}
    )
    specs = (InputSpec((1, 8, 8)),)
    module = Asks().train()
    built = BuiltModel("custom", module, {"inference": specs, "training": specs})
    assert output_shape(built, 5, "training") == (5, 3, 8, 8)
    assert module.training
    assert probe_training(built, config, CPU, 5, 3, CountedMemory()).steps_run == 3


@pytest.mark.parametrize("batch_size", [0, -2])
def test_no_batch_below_1(batch_size):
    with pytest.raises(ValueError, match="at least one sample"):
        probe(batch_size=batch_size)


# Named after the public bug reports.


def test_report_06_steps_are_counted_where_the_weights_change(monkeypatch):
    """Lightning 13851: a trial without a step is not a measurement."""

    class Never:
        scale = staticmethod(lambda loss: loss)
        unscale_ = step = staticmethod(lambda optimizer: None)
        update = staticmethod(lambda: None)

    real = training_probe.build_state

    def build(*arguments, **options):
        state = real(*arguments, **options)
        state.scaler = Never()
        return state

    monkeypatch.setattr(training_probe, "build_state", build)
    with pytest.raises(NoStepError, match="no step of 19 changed the weights"):
        probe()


@pytest.mark.parametrize("training", [True, False])
def test_report_07_the_network_is_left_as_it_was(training):
    """Lightning 18813: the model was left in training mode. Weights, flags, gradients, random numbers, settings."""
    built, config = built_and_config({"system.deterministic": True})
    built.module.train(training)
    next(built.module.children()).train(not training)
    before = copy.deepcopy(built.module.state_dict())
    flags = [part.training for part in built.module.modules()]
    torch.manual_seed(5)
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    probe_training(built, config, CPU, 2, 3, CountedMemory())
    assert [part.training for part in built.module.modules()] == flags
    assert all(torch.equal(value, before[name]) for name, value in built.module.state_dict().items())
    assert all(parameter.grad is None for parameter in built.module.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_report_07_also_after_a_failure(monkeypatch):
    built, config = built_and_config()
    built.module.eval()
    monkeypatch.setattr(training_probe, "training_step", lambda *a: 1 / 0)
    torch.manual_seed(5)
    random_state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        probe_training(built, config, CPU, 2, 3, CountedMemory())
    assert not any(part.training for part in built.module.modules())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_report_12_cold_and_warm_peaks_are_both_reported():
    """pytorch 15872: cudnn.benchmark's spike in the first step, here of 64 MiB, is not the later steps' peak."""
    with LiveBytes() as mode:
        found = probe(memory=CountedMemory(mode, spike_bytes=64 * MIB))
    assert found.cold.allocated_bytes > 64 * MIB
    assert found.warm.allocated_bytes < 64 * MIB


def test_report_16_the_optimizer_state_is_in_the_peak():
    """DFM 4: the first step fits, the second does not. Adam's two copies come with the first step's end.

    The peak is in the backward pass of both, so they differ by 2 x 4 bytes a parameter, and by the last step's loss,
    its two parts and the gradient norm, which the loop still holds: 4 x 4 bytes. (Adam's step counts are made out of
    the counter's sight.)
    """
    built, _ = built_and_config()
    state = sum(8 * parameter.numel() for parameter in built.module.parameters())
    with LiveBytes() as mode:
        found = probe(batch_size=16, memory=CountedMemory(mode))
    assert found.warm.allocated_bytes - found.cold.allocated_bytes == state + 4 * 4


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_report_16_fewer_than_three_steps_are_refused(steps):
    with pytest.raises(ValueError, match="shows from 3 on"):
        probe(steps=steps)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose counters are what the test writes into it."""
    stats = {
        "allocated_bytes.all.peak": 900,
        "requested_bytes.all.peak": 800,
        "reserved_bytes.all.peak": 1000,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }
    done = []
    fakes = {
        "init": lambda: done.append("init"),
        "set_device": lambda device: done.append("set"),
        "synchronize": lambda device: None,
        "reset_peak_memory_stats": lambda device: done.append("reset"),
        "memory_stats": lambda device: stats,
        "mem_get_info": lambda device: (4000, 10000),
        "memory_reserved": lambda device: 1000,
        "memory_allocated": lambda device: 700,
        "memory_snapshot": lambda: [{"is_expandable": False}, {"is_expandable": True}],
        "get_device_properties": lambda device: SimpleNamespace(uuid="abc"),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return SimpleNamespace(stats=stats, done=done)


def test_counters_of_a_gpu(gpu, monkeypatch):
    monkeypatch.setattr(devices, "nvml_process_bytes", lambda uuid, pid: 5000 if uuid == "abc" else 0)
    memory = open_device(torch.device("cuda", 0))
    assert isinstance(memory, CudaDevice)
    assert gpu.done == ["init", "set"]
    memory.reset_peak()
    assert memory.peak() == StepPeaks(900, 800, 1000)
    assert memory.troubles() == AllocatorTroubles(2, 1)
    assert (memory.process_bytes(), memory.reserved_bytes()) == (5000, 1000)
    assert memory.expandable_segments() is True
    # 4000 free and 1000 - 700 cached: what is allocated is not free, and reserved memory counts once.
    assert memory.device_memory() == DeviceMemory(4000, 300, 10000)
    assert memory.device_memory().usable_bytes == 4300


def test_an_allocator_that_does_not_count_requests(gpu):
    """cudaMallocAsync: null, not zero."""
    del gpu.stats["requested_bytes.all.peak"]
    assert CudaDevice(torch.device("cuda", 0)).peak().requested_bytes is None


class Recorded:
    """A device that tells what it was asked, in order."""

    def __init__(self):
        self.told = []

    def time_ms(self, step):
        step()
        return 1.0

    def __getattr__(self, name):
        return lambda: self.told.append(name)


def test_what_a_step_returned_is_let_go_before_the_next_peak_begins():
    device = Recorded()
    watch = StepWatch(device, MIN_TRAINING_STEPS, on_stage=lambda stage: None)
    device.told.clear()
    for _ in range(2):
        watch.time(lambda: device.told.append("step"), lambda: device.told.append("let go"))
    assert device.told == ["step", "let go", "peak", "reset_peak", "step", "let go"]
