"""Warnings about the machine, from counters that are made up."""

import os
from types import SimpleNamespace

import pynvml
import pytest

from swinmr_profiling.profiler.measure.machine import machine_state
from swinmr_profiling.profiler.measure.machine.machine_state import (
    THROTTLE_REASONS,
    StealTime,
    ask_nvml,
    governor_warning,
    gpu_warnings,
    load_now,
    load_warning,
    nvml_process_bytes,
)

UUID = "GPU-12345678-1234-1234-1234-123456789012"


@pytest.mark.parametrize(("load", "warned"), [(0.0, False), (2.0, False), (2.01, True), (60.0, True)])
def test_more_processes_than_cores_are_said(monkeypatch, load, warned):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 99.0, 99.0))
    warning = load_warning(2, load_now())
    assert (warning is not None) is warned
    if warned:
        assert warning.code == "machine_busy"
        assert f"load average {load:.1f} on 2 cores" in warning.message


def test_a_system_without_a_load_average_says_nothing(monkeypatch):
    monkeypatch.delattr(os, "getloadavg")
    assert load_warning(1, load_now()) is None


def cpu_times(user, steal, idle=0.0):
    return SimpleNamespace(user=user, nice=0.0, system=1.0, idle=idle, irq=0.0, softirq=0.0, steal=steal)


@pytest.mark.parametrize(
    ("stolen", "share"),
    [
        (0.0, None),
        (5.0, None),  # 5 of 103
        (5.2, "5%"),  # 5.04 %
        (25.0, "20%"),  # 25 of 123
        (98.0, "50%"),
    ],
)
def test_time_that_the_host_gave_to_others_is_said(monkeypatch, stolen, share):
    """98 s of ours, however long the rest of the machine idled: idleness is not what anybody took."""
    times = iter([cpu_times(10.0, 7.0), cpu_times(108.0, 7.0 + stolen, idle=1000.0)])
    monkeypatch.setattr(machine_state.psutil, "cpu_times", lambda: next(times))
    warning = StealTime().warning(4)
    assert (warning is None) is (share is None)
    if share:
        assert (warning.code, warning.batch_size) == ("time_stolen", 4)
        assert f"steal time is {share}" in warning.message


def test_a_system_that_counts_no_stolen_time_says_nothing(monkeypatch):
    times = iter(
        [SimpleNamespace(user=1.0, system=1.0, idle=1.0), SimpleNamespace(user=9.0, system=2.0, idle=1.0)]
    )
    monkeypatch.setattr(machine_state.psutil, "cpu_times", lambda: next(times))
    assert StealTime().warning(1) is None


@pytest.mark.parametrize(
    ("governor", "driver", "warned"),
    [
        ("powersave", "acpi-cpufreq", True),
        ("powersave", None, True),
        # These two call the ordinary, scaling policy so.
        ("powersave", "intel_pstate", False),
        ("powersave", "amd-pstate-epp", False),
        ("performance", "acpi-cpufreq", False),
        ("schedutil", "acpi-cpufreq", False),
        (None, None, False),
    ],
)
def test_a_power_saving_governor_is_said(tmp_path, monkeypatch, governor, driver, warned):
    monkeypatch.setattr(machine_state, "GOVERNOR", tmp_path / "scaling_governor")
    if governor:
        (tmp_path / "scaling_governor").write_text(f"{governor}\n")
    if driver:
        (tmp_path / "scaling_driver").write_text(f"{driver}\n")
    warning = governor_warning()
    assert (warning.code if warning else None) == ("power_saving" if warned else None)


@pytest.fixture
def gpu(monkeypatch):
    def pretend(reasons=0, pids=()):
        """NVML of one GPU with these reasons for its clock (None: it does not tell) and these processes."""

        def throttling(handle):
            if reasons is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return reasons

        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: "handle",
            "nvmlDeviceGetCurrentClocksThrottleReasons": throttling,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=pid, usedGpuMemory=10 * pid) for pid in pids
            ],
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)

    return pretend


def test_what_a_process_holds_is_its_own(gpu):
    gpu(pids=[300, 100])
    assert nvml_process_bytes(UUID, 100) == 1000
    assert nvml_process_bytes(UUID, 7) is None
    assert nvml_process_bytes(None, 100) is None


@pytest.mark.parametrize("bit", THROTTLE_REASONS)
def test_each_reason_of_heat_or_power_is_named(gpu, bit):
    gpu(reasons=bit)
    (warning,) = gpu_warnings(UUID, set())
    assert warning.code == "gpu_throttled"
    assert f"({THROTTLE_REASONS[bit]})" in warning.message


def test_the_reasons_are_nvmls():
    assert set(THROTTLE_REASONS) == {
        pynvml.nvmlClocksThrottleReasonSwPowerCap,
        pynvml.nvmlClocksThrottleReasonHwSlowdown,
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }


@pytest.mark.parametrize(
    "reason",
    [
        0,
        pynvml.nvmlClocksThrottleReasonGpuIdle,
        pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting,
        pynvml.nvmlClocksThrottleReasonSyncBoost,
    ],
)
def test_an_idle_or_a_locked_clock_is_no_throttling(gpu, reason):
    gpu(reasons=reason)
    assert gpu_warnings(UUID, set()) == []


def test_several_reasons_are_one_warning(gpu):
    gpu(reasons=0x04 | 0x40 | 0x01)
    (warning,) = gpu_warnings(UUID, set())
    assert "(software power cap, hardware thermal slowdown)" in warning.message


def test_other_processes_on_the_gpu_are_said_and_ours_are_not(gpu):
    gpu(pids=[300, 100, 200])
    (warning,) = gpu_warnings(UUID, own_pids={100})
    assert warning.code == "gpu_shared"
    assert "(pid 200, 300)" in warning.message
    assert gpu_warnings(UUID, own_pids={100, 200, 300}) == []


def test_a_card_that_does_not_tell_brings_no_warning(gpu):
    gpu(reasons=None, pids=[1])
    assert gpu_warnings(UUID, set()) == []


def test_without_a_gpu_nvml_is_not_asked(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pytest.fail("asked"))
    assert ask_nvml(None, lambda *_: pytest.fail("asked")) is None
    assert gpu_warnings(None, set()) == []


def test_a_machine_without_a_driver_brings_no_warning(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert gpu_warnings(UUID, set()) == []


@pytest.mark.parametrize("uuid", [UUID, UUID.removeprefix("GPU-")])
def test_the_gpu_is_found_by_the_uuid_that_torch_gives(monkeypatch, uuid):
    calls = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: calls.append("init"))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda name: calls.append(name) or "handle")
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: calls.append("shutdown"))
    assert ask_nvml(uuid, lambda *opened: opened) == (pynvml, "handle")
    assert calls == ["init", UUID, "shutdown"]
