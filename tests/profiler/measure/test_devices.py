"""Devices: the refusals with and without a GPU, and the CPU's clock and memory."""

import ctypes
import mmap
from types import SimpleNamespace

import pytest
import torch

from swinmr_profiling.profiler.measure.machine import devices
from swinmr_profiling.profiler.measure.machine.devices import (
    PRECISIONS,
    CpuDevice,
    CudaDevice,
    DeviceError,
    check_precision,
    open_device,
    resolve_device,
)

MIB = 2**20
CPU = torch.device("cpu")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that there are as many GPUs as it is called with."""

    def pretend(count, bf16=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GeForce GTX 1080")

    return pretend


def test_only_auto_falls_back_to_the_cpu(no_gpu):
    assert resolve_device("auto") == CPU
    assert resolve_device("cpu") == CPU
    for name in ("cuda", "cuda:1"):
        with pytest.raises(DeviceError) as caught:
            resolve_device(name)
        assert str(caught.value).startswith(f"--device {name}: no CUDA device is available")
        assert str(caught.value).endswith("; use --device cpu or auto")


def test_a_torch_without_cuda_is_named(no_gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError, match=r"\(this torch, .*, is built without CUDA\)"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(DeviceError, match="available; use"):
        resolve_device("cuda")


def test_gpus_are_numbered(gpus):
    gpus(2)
    assert resolve_device("auto") == torch.device("cuda", 0)
    assert resolve_device("cuda") == torch.device("cuda", 0)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu") == CPU


@pytest.mark.parametrize(
    ("count", "name", "message"),
    [
        (1, "cuda:1", "--device cuda:1: there is only cuda:0"),
        (2, "cuda:2", "--device cuda:2: there is only cuda:0 to cuda:1"),
        (8, "cuda:99", "--device cuda:99: there is only cuda:0 to cuda:7"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(gpus, count, name, message):
    gpus(count)
    with pytest.raises(DeviceError) as caught:
        resolve_device(name)
    assert str(caught.value) == message


def test_bf16_is_refused_where_the_gpu_has_none(gpus):
    gpus(1, bf16=False)
    gpu = torch.device("cuda", 0)
    with pytest.raises(DeviceError) as caught:
        check_precision(gpu, "bf16")
    assert str(caught.value) == "bf16: GeForce GTX 1080 has no bf16; use fp16 or fp32"
    assert check_precision(gpu, "fp16") is torch.float16
    # A CPU emulates it.
    assert check_precision(CPU, "bf16") is torch.bfloat16


def test_bf16_is_given_where_the_gpu_has_it(gpus):
    gpus(1, bf16=True)
    got = {name: check_precision(torch.device("cuda", 0), name) for name in PRECISIONS}
    # Of autocast: with weights in bf16 there is none.
    assert got == {
        "fp32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "pure_bf16": torch.float32,
    }


def test_each_device_is_measured_by_its_own_side(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert open_device(CPU).kind == "cpu"
    gpu = open_device(torch.device("cuda", 1))
    assert isinstance(gpu, CudaDevice)
    assert gpu.kind == "cuda"
    assert chosen == [torch.device("cuda", 1)]


def test_the_cpu_clock_spans_the_run_in_milliseconds(monkeypatch):
    ticks = iter([5_000_000, 8_500_000])
    order = []

    def tick():
        order.append("clock")
        return next(ticks)

    device = CpuDevice()
    monkeypatch.setattr(devices.time, "perf_counter_ns", tick)
    assert device.time_ms(lambda: order.append("run")) == 3.5
    assert order == ["clock", "run", "clock"]


def test_a_gpu_is_timed_by_events_around_the_run_and_waited_for(monkeypatch):
    order = []

    class Event:
        made = 0

        def __init__(self, enable_timing):
            assert enable_timing
            Event.made += 1
            self.name = ("start", "end")[Event.made - 1]

        def record(self):
            order.append(f"record {self.name}")

        def synchronize(self):
            order.append(f"wait for {self.name}")

        def elapsed_time(self, other):
            return {"start": {"end": 2.5}}[self.name][other.name]

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: order.append("wait for all"))
    assert CudaDevice(torch.device("cuda", 0)).time_ms(lambda: order.append("run")) == 2.5
    assert order == ["wait for all", "record start", "run", "record end", "wait for end"]


def test_gpu_memory_is_the_allocators(monkeypatch):
    calls = []
    fake = SimpleNamespace(
        set_device=lambda device: None,
        synchronize=lambda device: calls.append("synchronize"),
        empty_cache=lambda: calls.append("empty_cache"),
        reset_peak_memory_stats=lambda device: calls.append("reset"),
        memory_allocated=lambda device: 11,
        memory_stats=lambda device: {"allocated_bytes.all.peak": 22, "reserved_bytes.all.peak": 33},
        init=lambda: None,
    )
    monkeypatch.setattr(devices.torch, "cuda", fake)
    gpu = CudaDevice("cuda:0")
    assert gpu.current_bytes() == 11
    assert (gpu.peak().allocated_bytes, gpu.peak().reserved_bytes) == (22, 33)
    calls.clear()
    gpu.reset_peak()
    assert calls == ["synchronize", "reset"]
    calls.clear()
    gpu.release_cached()
    assert calls == ["synchronize", "empty_cache"]


def use_memory(mib):
    """Touches that many MiB and gives them back: of the kernel's, as malloc may hand out what is resident already."""
    with mmap.mmap(-1, mib * MIB) as block:
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1


def test_what_a_run_used_and_freed_is_in_its_peak():
    device = CpuDevice()
    device.reset_peak()
    before = device.current_bytes()
    assert device.time_ms(lambda: use_memory(200)) > 0
    peak = device.peak()
    assert peak.reserved_bytes is None
    # 200 MiB, give or take what the rest of the process does; a sampler may miss the last of it.
    assert 150 * MIB < peak.allocated_bytes - before < 260 * MIB


def test_resident_memory_and_its_peak_are_read_by_one_means(tmp_path, monkeypatch):
    """Scripted: of /proc/self/status alone, of one reading, and never below what has been seen since the reset."""
    readings = iter(
        [
            # (VmRSS, VmHWM) kB: at the start, before, after, at the peak, whose mark lags; of the reset, after it.
            *((700, 700), (710, 705), (760, 720), (730, 740)),
            *((300, 310), (305, 310)),
        ]
    )

    def read_text(path, **_options):
        assert path == CpuDevice.STATUS
        resident, mark = next(readings)
        return f"VmHWM:\t{mark} kB\nVmRSS:\t{resident} kB\n"

    def no_psutil():
        raise AssertionError("resident memory by other means")

    monkeypatch.setattr(CpuDevice, "CLEAR_REFS", tmp_path / "clear_refs")
    monkeypatch.setattr(CpuDevice, "STATUS", tmp_path / "status")
    monkeypatch.setattr(devices.Path, "read_text", read_text)
    monkeypatch.setattr(devices.psutil, "Process", no_psutil)
    device = CpuDevice()
    assert (device.current_bytes(), device.current_bytes()) == (710 * 1024, 760 * 1024)
    assert device.peak().allocated_bytes == 760 * 1024
    device.reset_peak()
    assert device.peak().allocated_bytes == 310 * 1024


def test_free_heap_is_given_back_before_memory_is_read(monkeypatch):
    """Where the C library can; elsewhere it is left as it is."""
    trimmed = []
    monkeypatch.setattr(devices, "_heap_trimmer", lambda: trimmed.append)
    CpuDevice().release_cached()
    assert trimmed == [0]
    monkeypatch.setattr(devices, "_heap_trimmer", lambda: None)
    CpuDevice().release_cached()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
def test_what_python_freed_is_not_in_use_any_more():
    """Pieces of 64 KiB are of the heap, which the C library keeps as long as one at its end is in use."""
    device = CpuDevice()
    device.release_cached()
    before = device.current_bytes()
    pieces = [bytes(64 * 1024) for _ in range(1600)]
    pieces = [piece.replace(b"\0", b"1") for piece in pieces]
    last = pieces[-1]
    full = device.current_bytes()
    del pieces
    device.release_cached()
    after = device.current_bytes()
    assert full - before > 90 * MIB
    assert after - before < 20 * MIB
    assert len(last) == 64 * 1024


def test_a_reset_forgets_an_earlier_peak():
    device = CpuDevice()
    use_memory(200)
    device.reset_peak()
    assert device.peak().allocated_bytes < device.current_bytes() + 50 * MIB


def test_where_the_kernel_keeps_no_mark_it_is_sampled_and_said(tmp_path, monkeypatch):
    # A path below a file can be neither made nor written.
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(CpuDevice, "CLEAR_REFS", tmp_path / "file" / "clear_refs")
    resident = iter([100 * MIB, 900 * MIB])
    waits = []

    class Process:
        def memory_info(self):
            return SimpleNamespace(rss=next(resident, 300 * MIB))

    class Thread:
        """Runs the sampler here, for three samples."""

        def __init__(self, target, daemon):
            assert daemon
            self.target = target

        def start(self):
            with pytest.raises(StopIteration):
                self.target()

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            raise StopIteration

    monkeypatch.setattr(devices.psutil, "Process", Process)
    monkeypatch.setattr(devices.threading, "Thread", Thread)
    monkeypatch.setattr(devices.time, "sleep", wait)
    device = CpuDevice()
    assert device.memory_kind == "resident memory of the whole process (sampled every 10 ms)"
    assert waits == [0.01] * 3
    assert device.peak().allocated_bytes == 900 * MIB
    device.reset_peak()
    assert device.peak().allocated_bytes == 300 * MIB


def test_the_kernels_mark_is_labelled_where_it_can_be_reset(tmp_path, monkeypatch):
    (tmp_path / "status").write_text(
        "Name:\tpython\nVmPeak:\t 999999999 kB\nVmHWM:\t  5000000 kB\nVmRSS:\t 1 kB\n"
    )
    monkeypatch.setattr(CpuDevice, "CLEAR_REFS", tmp_path / "clear_refs")
    monkeypatch.setattr(CpuDevice, "STATUS", tmp_path / "status")
    device = CpuDevice()
    assert device.memory_kind == "resident memory of the whole process (kernel high-water mark)"
    assert device.peak().allocated_bytes == 5_000_000 * 1024
    (tmp_path / "clear_refs").write_text("")
    device.reset_peak()
    # 5 resets the peak resident set size (proc(5)).
    assert (tmp_path / "clear_refs").read_text() == "5"
