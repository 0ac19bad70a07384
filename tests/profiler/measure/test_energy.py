"""Energy counters by stand-ins (no GPU and no RAPL here), and the config's own loader for real."""

import types

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.energy import (
    EnergyError,
    NvmlEnergy,
    RaplEnergy,
    count_energy,
    inference_energy,
    measure_loading,
    training_energy,
)
from swinmr_profiling.profiler.record.blocks.energy import Energy
from swinmr_profiling.profiler.reports.views.view import energy_rows
from swinmr_profiling.training.errors import DataError
from tests.conftest import TINY_SWINIR


def rapl(folder, packages):
    for number, (energy, full) in enumerate(packages):
        zone = folder / f"intel-rapl:{number}"
        zone.mkdir(exist_ok=True)
        (zone / "name").write_text(f"package-{number}\n")
        (zone / "energy_uj").write_text(f"{energy}\n")
        (zone / "max_energy_range_uj").write_text(f"{full}\n")
    core = folder / "intel-rapl:0:0"  # a part of package 0, which must not count twice
    core.mkdir(exist_ok=True)
    (core / "name").write_text("core\n")
    (core / "energy_uj").write_text("999999999\n")
    return folder


def test_rapl_adds_packages_and_goes_on_when_a_counter_is_full(tmp_path):
    reader = RaplEnergy(rapl(tmp_path, [(9_000_000, 10_000_000), (1_000_000, 10_000_000)]))
    assert reader.joules() == 0.0
    # Package 0: 9 J up to 10 J, and on to 2 J: 3 J. Package 1: 1 J to 5 J.
    rapl(tmp_path, [(2_000_000, 10_000_000), (5_000_000, 10_000_000)])
    assert reader.joules() == pytest.approx(7.0)
    rapl(tmp_path, [(2_500_000, 10_000_000), (5_000_000, 10_000_000)])
    assert reader.joules() == pytest.approx(7.5)


def test_rapl_that_is_not_there_or_not_readable(tmp_path):
    with pytest.raises(EnergyError, match="no counter of a CPU package"):
        RaplEnergy(tmp_path)
    rapl(tmp_path, [(1, 10)])
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    (tmp_path / "intel-rapl:0" / "energy_uj").mkdir()  # what even root cannot read
    with pytest.raises(EnergyError, match="cannot be read"):
        RaplEnergy(tmp_path)


def nvml(readings):
    left = iter(readings)
    asked = []

    def by_uuid(uuid):
        asked.append(uuid)
        return uuid

    return types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: next(left),
        asked=asked,
    )


def test_nvml_counts_millijoules_of_the_device_that_torch_names():
    library = nvml([5_000, 5_000, 6_500])
    reader = NvmlEnergy("1234-ab", library)
    assert library.asked == ["GPU-1234-ab"]
    first = reader.joules()
    assert reader.joules() - first == pytest.approx(1.5)
    with pytest.raises(EnergyError, match="NVML counts no energy here"):
        NvmlEnergy("1", types.SimpleNamespace(nvmlInit=lambda: 1 / 0))


class Steady:
    """A counter of a machine that takes 50 W by the clock of the test."""

    name, covers, untried = "rapl", "a stand-in", True

    def __init__(self):
        self.now = 0.0

    def joules(self):
        return 1000.0 + 50.0 * self.now


def test_counted_runs_by_hand():
    reader = Steady()
    calls = []

    def run():
        calls.append("run")
        reader.now += 0.4

    found = count_energy(
        run, lambda: calls.append("wait"), reader, least_seconds=1.0, clock=lambda: reader.now
    )
    # One to warm up, then until a second is over: three of 0.4 s, each waited for.
    assert calls == ["run", "wait"] * 4
    assert (found.runs, found.seconds, found.joules) == (3, pytest.approx(1.2), pytest.approx(60.0))


@pytest.fixture(scope="module")
def config():
    sections = {
        "data": {"use_patches": False, "num_workers": 0, "source": "phantom"},
        "training": {"accumulate": 2},
    }
    return config_from_dict({"model": TINY_SWINIR, **sections})


def test_per_image_and_per_step(config, monkeypatch):
    """On a real network; only the counter and its clock are stand-ins: a tick of a second at each reading."""
    from swinmr_profiling.profiler.measure import energy

    reader = Steady()

    def clock():
        reader.now += 1.0
        return reader.now

    monkeypatch.setattr(energy.time, "monotonic", clock)
    monkeypatch.setattr(energy.count_energy, "__kwdefaults__", {"least_seconds": 0.0, "clock": clock})
    built = build_model(config)
    cpu = torch.device("cpu")
    before = {name: value.clone() for name, value in built.module.state_dict().items()}
    forward = inference_energy(built, built.module, cpu, torch.float32, 4, reader, channels_last=False)
    step = training_energy(built, config, cpu, 2, reader)
    assert all(torch.equal(before[name], value) for name, value in built.module.state_dict().items())
    assert (forward.num_runs, forward.joules_per_step) == (3, None)
    assert forward.joules_per_image == pytest.approx(forward.joules / 3 / 4)
    # Two micro-batches of two are a step of four images.
    assert (step.images_per_step, step.num_runs) == (4, 3)
    assert step.joules_per_step == pytest.approx(step.joules / 3)
    assert step.joules_per_image == pytest.approx(step.joules / 12)
    assert step.mean_watts == pytest.approx(50.0, rel=0.2)
    block = Energy(
        source="measured", reader="rapl", covers="a stand-in", untried=True, figures=[forward, step]
    )
    rows = dict(energy_rows(block, None))
    assert "J per step of 4" in rows["training, batch 2"]
    assert "untried: no such machine has run this code" in rows["energy counter"]


def test_the_configs_own_loader_is_timed_beside_the_step(config):
    fast = measure_loading(config, 2, step_ms=1e6)
    assert (fast.data_source, fast.batch_size, fast.num_workers) == ("phantom", 2, 0)
    assert fast.num_batches >= 1
    assert not fast.waits
    assert measure_loading(config, 2, step_ms=1e-6).waits
    assert measure_loading(config, 2, None).waits is None
    rows = dict(energy_rows(None, fast))
    assert "the loader keeps up" in rows["loader beside the step"]


def test_data_that_is_not_there_is_told(tmp_path):
    config = config_from_dict(
        {"model": TINY_SWINIR, "data": {"train_dir": str(tmp_path / "no"), "source": "npy"}}
    )
    with pytest.raises(DataError, match="no such folder"):
        measure_loading(config, 1, None)
