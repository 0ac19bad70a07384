"""What counts as out of memory, with the words that torch, cuDNN, cuBLAS and the kernel really use."""

import json
import signal

import pytest
import torch
from pydantic import TypeAdapter

from swinmr_profiling.models import host_memory
from swinmr_profiling.profiler.record import failures
from swinmr_profiling.profiler.record.failures import (
    Failure,
    cgroup_files,
    classify_death,
    classify_exception,
    confirm_memory,
    kernel_kills,
)

OOM, KILLED, CRASHED = "OOM", "killed", "crashed"
EXCEPTION, UNSUPPORTED = "exception", "unsupported"


def raised_by(run):
    try:
        run()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


# name: (exception, kind, a new process is needed, possibly memory)
MESSAGES = {
    "torch's allocator": (
        torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which "
            "1.02 GiB is free. Process 1234 has 78.08 GiB memory in use."
        ),
        (OOM, True, False),
    ),
    "Python's allocator": (MemoryError(), (OOM, True, False)),
    "numpy's, which is a MemoryError": (MemoryError("Unable to allocate 8.0 TiB"), (OOM, True, False)),
    "the host allocator on Windows": (
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you "
            "tried to allocate 68719476736 bytes."
        ),
        (OOM, True, False),
    ),
    "cuBLAS": (
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        (EXCEPTION, True, True),
    ),
    "cuDNN 8": (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), (EXCEPTION, True, True)),
    "cuDNN 9": (
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        (EXCEPTION, True, True),
    ),
    "cuFFT": (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), (EXCEPTION, True, True)),
    "cuSOLVER": (
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
        (EXCEPTION, True, True),
    ),
    "the driver, outside torch's allocator": (
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        (EXCEPTION, True, True),
    ),
    "a grid too large": (
        RuntimeError("CUDA error: invalid configuration argument"),
        (UNSUPPORTED, True, False),
    ),
    "an index beyond 32 bits": (
        RuntimeError("Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true"),
        (UNSUPPORTED, False, False),
    ),
    "a tensor beyond 32 bits": (
        RuntimeError("nonzero is not supported for tensors with more than INT_MAX elements"),
        (UNSUPPORTED, False, False),
    ),
    "an illegal access": (
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        (EXCEPTION, True, False),
    ),
    "a failed assertion on the device": (
        RuntimeError("CUDA error: device-side assert triggered"),
        (EXCEPTION, True, False),
    ),
    "torch 2.9's name of a sticky error": (
        torch.AcceleratorError("unspecified launch failure"),
        (EXCEPTION, True, False),
    ),
    "cuBLAS, not for memory": (
        RuntimeError("cublas: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
        (EXCEPTION, False, False),
    ),
    "the network's own words about memory": (
        ValueError("the memory bank is out of slots"),
        (EXCEPTION, False, False),
    ),
    "no operator": (
        NotImplementedError("\"slow_conv2d_cpu\" not implemented for 'Half'"),
        (EXCEPTION, False, False),
    ),
    "a missing key": (KeyError("image"), (EXCEPTION, False, False)),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_sorted(name):
    error, expected = MESSAGES[name]
    got = classify_exception(error)
    assert (got.error, got.needs_new_process, got.possibly_memory) == expected


def test_a_real_refusal_of_the_host_allocator_is_out_of_memory():
    # 2^62 bytes are beyond any address space, however generously the kernel overcommits.
    error = raised_by(lambda: torch.empty(2**62, dtype=torch.uint8))
    assert type(error) is RuntimeError
    got = classify_exception(error)
    assert got.error is OOM
    assert "4611686018427387904 bytes" in got.detail


@pytest.mark.parametrize(
    "run",
    [
        lambda: torch.zeros(2, 3) @ torch.zeros(2, 3),
        lambda: torch.nn.Conv2d(3, 4, 3)(torch.zeros(1, 1, 8, 8)),
        lambda: torch.zeros(2, 3).view(5),
        lambda: torch.nn.Embedding(4, 2)(torch.tensor([9])),
    ],
)
def test_real_errors_of_a_network_are_shown_as_themselves(run):
    error = raised_by(run)
    got = classify_exception(error)
    assert (got.error, got.needs_new_process, got.possibly_memory) == (EXCEPTION, False, False)
    assert got.detail.startswith(type(error).__name__)
    assert str(error).split()[0] in got.detail


def test_a_subclass_of_torchs_error_is_out_of_memory_too():
    class PoolExhausted(torch.OutOfMemoryError):
        pass

    assert classify_exception(PoolExhausted("pool")).error is OOM


def test_the_detail_is_one_line_of_bounded_length():
    got = classify_exception(RuntimeError("first\n   second\n" + "x" * 2000))
    assert got.detail.startswith("RuntimeError: first second x")
    assert len(got.detail) == 500
    assert classify_exception(ValueError()).detail == "ValueError"


@pytest.mark.parametrize(
    ("returncode", "kernel_killed", "kind", "words"),
    [
        (-signal.SIGKILL, True, OOM, "killed by the kernel: out of host memory (SIGKILL)"),
        (-signal.SIGKILL, False, KILLED, "the measuring process ended by SIGKILL"),
        # The counter rose for somebody else's process: these signals are not the kernel's.
        (-signal.SIGTERM, True, KILLED, "the measuring process ended by SIGTERM"),
        (-signal.SIGSEGV, True, CRASHED, "the measuring process ended by SIGSEGV"),
        (-signal.SIGSEGV, False, CRASHED, "the measuring process ended by SIGSEGV"),
        (-signal.SIGABRT, False, CRASHED, "the measuring process ended by SIGABRT"),
        (-signal.SIGBUS, False, CRASHED, "the measuring process ended by SIGBUS"),
        (-signal.SIGFPE, False, CRASHED, "the measuring process ended by SIGFPE"),
        (-signal.SIGILL, False, CRASHED, "the measuring process ended by SIGILL"),
        (-signal.SIGHUP, False, KILLED, "the measuring process ended by SIGHUP"),
        (-signal.SIGTERM, False, KILLED, "the measuring process ended by SIGTERM"),
        (-250, False, KILLED, "the measuring process ended by signal 250"),
        (0, False, CRASHED, "the measuring process ended with exit status 0"),
        (1, False, CRASHED, "the measuring process ended with exit status 1"),
        (137, True, CRASHED, "the measuring process ended with exit status 137"),
    ],
)
def test_deaths_are_sorted(returncode, kernel_killed, kind, words):
    assert classify_death(returncode, kernel_killed) == Failure(kind, words, needs_new_process=True)


def test_a_library_failure_is_memory_once_a_smaller_size_ran():
    failure = classify_exception(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert failure.detail == "possibly out of memory: RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"
    assert confirm_memory(failure, None) == failure
    confirmed = confirm_memory(failure, 4)
    assert confirmed.error is OOM
    assert confirmed.detail == f"{failure.detail} (batch 4 ran)"
    assert confirmed.needs_new_process


def test_no_other_failure_becomes_memory_because_a_smaller_size_ran():
    for failure in (
        classify_exception(RuntimeError("CUDA error: an illegal memory access was encountered")),
        classify_exception(ValueError("shape")),
        classify_death(-signal.SIGKILL, False),
    ):
        assert confirm_memory(failure, 4) is failure


def test_failures_travel_as_json():
    failure = classify_exception(MemoryError("no"))
    fields = json.loads(json.dumps(vars(failure)))
    assert fields["error"] == "OOM"
    assert TypeAdapter(Failure).validate_python(fields) == failure


@pytest.fixture
def fake_kernel(tmp_path, monkeypatch):
    """Writes counter files below a folder that stands for / ; returns the writer."""

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    monkeypatch.setattr(failures, "VMSTAT", tmp_path / "vmstat")
    monkeypatch.setattr(host_memory, "PROC_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(host_memory, "CGROUP_ROOT", tmp_path / "fs")
    write.root = tmp_path
    return write


EVENTS = "low 0\nhigh 3\nmax 12\noom 7\noom_kill {}\noom_group_kill 9\n"


def test_a_system_without_counters_proves_nothing(fake_kernel):
    assert kernel_kills() == 0


def test_kills_are_read_from_vmstat(fake_kernel):
    fake_kernel({"vmstat": "nr_free_pages 123\noom_kill 5\npgfault 9\n"})
    assert kernel_kills() == 5


def test_kills_are_read_from_cgroup_version_2(fake_kernel):
    fake_kernel({"cgroup": "0::/user.slice/job\n", "fs/user.slice/job/memory.events": EVENTS.format(4)})
    assert kernel_kills() == 4
    fake_kernel({"fs/user.slice/job/memory.events": EVENTS.format(5)})
    assert kernel_kills() == 5


def test_kills_are_read_from_cgroup_version_1(fake_kernel):
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    fake_kernel(
        {
            "cgroup": "12:cpu,cpuacct:/other\n5:memory:/job\n1:name=systemd:/other\n",
            "fs/memory/job/memory.oom_control": control,
            # Another controller's path is somebody else's.
            "fs/memory/other/memory.oom_control": "oom_kill 100\n",
        }
    )
    assert kernel_kills() == 2


def test_a_container_that_sees_its_cgroup_at_the_root_is_read(fake_kernel):
    # Inside a container without a cgroup namespace the path is the host's, the mount is the container's.
    fake_kernel({"cgroup": "0::/docker/abc\n", "fs/memory.events": EVENTS.format(1)})
    assert kernel_kills() == 1


def test_a_file_that_is_named_twice_counts_once(fake_kernel):
    fake_kernel({"cgroup": "0::/\n", "fs/memory.events": EVENTS.format(3)})
    assert cgroup_files("memory.events", "memory.oom_control") == [fake_kernel.root / "fs/memory.events"]
    assert kernel_kills() == 3


def test_an_unreadable_counter_is_no_proof(fake_kernel):
    fake_kernel({"vmstat": "oom_kill many\n"})
    assert kernel_kills() == 0
