"""Faults, each injected at a moment of the real command: what was measured is kept, and nothing is left running."""

import json
import signal
import subprocess
import time

import pytest

from tests.scripts.faulty_command import PATIENCE_S, SHORT_RUNS, assert_measured, wait_for

# fault -> (error of batch 4, words of its detail, error of batch 8 or None where it is measured, exit code)
FAULTS_AT_BATCH_4 = {
    "out_of_memory": ("OOM", "Tried to allocate 20.00 GiB", "skipped", 0),
    "host_allocation": ("OOM", "DefaultCPUAllocator", "skipped", 0),
    "memory_error": ("OOM", "MemoryError", "skipped", 0),
    "cublas_allocation": ("OOM", "CUBLAS_STATUS_ALLOC_FAILED", "skipped", 0),
    "cudnn_allocation": ("OOM", "ALLOCATION_FAILED", "skipped", 0),
    "kernel_launch": ("unsupported", "invalid configuration argument", None, 4),
    "int32_index": ("unsupported", "INT_MAX", None, 4),
    "sticky_error": ("exception", "illegal memory access", None, 4),
    "shape_error": ("exception", "mat1 and mat2 shapes cannot be multiplied", None, 4),
    "own_error": ("exception", "KeyError: 'scale'", None, 4),
    "recursion": ("exception", "RecursionError", None, 4),
    "kill": ("killed", "SIGKILL", None, 4),
    "terminate": ("killed", "SIGTERM", None, 4),
    "segmentation_fault": ("crashed", "SIGSEGV", None, 4),
    "abort": ("crashed", "SIGABRT", None, 4),
    "leave": ("crashed", "exit status 3", None, 4),
    "system_exit": ("crashed", "exit status 7", None, 4),
    "interrupt_inside": ("killed", "SIGINT", None, 4),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", FAULTS_AT_BATCH_4)
def test_a_fault_costs_its_batch_size(command, fault, read_profile):
    error, words, error_of_8, code = FAULTS_AT_BATCH_4[fault]
    run = command.run(fault=fault)
    assert run.returncode == code, run.stderr
    profile = read_profile(command.output)
    assert_measured(profile, "1")
    assert profile["batch_profiling"]["4"]["error"] == error
    assert words in profile["batch_profiling"]["4"]["detail"]
    if error_of_8 is None:
        assert_measured(profile, "8")
    else:
        assert profile["batch_profiling"]["8"]["error"] == error_of_8
    assert profile["status"] == ("complete" if code == 0 else "partial")
    if code:
        assert "4" in profile["status_reason"]
    # An exception is shown as itself, with the place it came from; what is not a defect shows no traceback.
    if error == "exception":
        assert "faulty_network.py" in run.stderr
    elif error in ("OOM", "unsupported"):
        assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_kernel_kill_is_out_of_memory(command, tmp_path, read_profile):
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("oom_kill 7\n")
    command.faults["vmstat"] = str(vmstat)
    command.environment["VMSTAT_FILE"] = str(vmstat)
    run = command.run(fault="kernel_kill")
    assert run.returncode == 0, run.stderr
    blocks = read_profile(command.output)["batch_profiling"]
    assert "timing" in blocks["1"]
    assert blocks["4"]["error"] == "OOM"
    assert "kernel" in blocks["4"]["detail"]
    assert blocks["8"]["error"] == "skipped"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "hang_with_a_child"])
def test_a_hang_ends_at_the_timeout(command, fault, read_profile):
    run = command.run("--timeout", "5", fault=fault)
    assert run.returncode == 4, run.stderr
    profile = read_profile(command.output)
    assert_measured(profile, "1", "8")
    assert profile["batch_profiling"]["4"]["error"] == "killed"
    assert "--timeout" in profile["batch_profiling"]["4"]["detail"]


@pytest.mark.slow
def test_nan_output_names_its_module(command, read_profile):
    run = command.run(fault="not_a_number")
    assert run.returncode == 0, run.stderr
    profile = read_profile(command.output)
    assert_measured(profile, "1", "4", "8")
    assert [(w["code"], w["batch_size"]) for w in profile["warnings"] if "nonfinite" in w["code"]] == [
        ("nonfinite_output", 4)
    ]
    printed = " ".join(run.stdout.split())  # its lines are wrapped
    assert "module scale" in printed
    assert printed.count("holds NaN") == 1


@pytest.mark.slow
def test_library_allocation_without_a_smaller_size_is_no_proof(command, read_profile):
    run = command.run(fault="cublas_allocation", batch=1, sizes="1,8")
    assert run.returncode == 4, run.stderr
    blocks = read_profile(command.output)["batch_profiling"]
    assert blocks["1"]["error"] == "exception"
    assert blocks["1"]["detail"].startswith("possibly out of memory")
    assert "timing" in blocks["8"]


def test_nothing_fits(command, read_profile):
    run = command.run(fault="out_of_memory", batch=1, sizes="1,4")
    assert run.returncode == 3, run.stderr
    blocks = read_profile(command.output)["batch_profiling"]
    assert blocks["1"]["error"] == "OOM"
    assert blocks["4"]["error"] == "skipped"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "segmentation_fault", "leave"])
def test_death_while_building(command, fault, read_profile):
    run = command.run(fault=fault, moment="build")
    assert run.returncode == 4, run.stderr
    profile = read_profile(command.output)
    assert profile["status"] == "partial"
    assert profile["environment"]["cpu"]["name"]
    assert profile["architecture"] is None


@pytest.mark.slow
def test_exception_while_building(command):
    run = command.run(fault="own_error", moment="build")
    assert run.returncode == 2
    assert "faulty_network:Faulty raised KeyError: 'scale'" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "segmentation_fault"])
def test_death_while_counting(command, fault, read_profile):
    """The count is lost, the measurements are not."""
    run = command.run(fault=fault, moment="count")
    profile = read_profile(command.output)
    assert run.returncode == 4, run.stderr
    assert profile["architecture"]["macs"] is None
    assert profile["architecture"]["count_error"]
    assert profile["architecture"]["total_parameters"] == 0
    assert_measured(profile, "1", "4", "8")


@pytest.mark.slow
def test_exception_on_meta_falls_back_to_a_real_forward(command, read_profile):
    run = command.run(fault="own_error", moment="count")
    assert run.returncode == 0, run.stderr
    architecture = read_profile(command.output)["architecture"]
    assert architecture["counted_on"] == "cpu"
    assert "KeyError" in architecture["note"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_keep_what_was_measured(command, number, read_profile):
    process = command.start(fault="hang")
    wait_for(process, "Testing batch size: 4")
    time.sleep(0.5)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    profile = read_profile(command.output)
    assert_measured(profile, "1")
    assert profile["status"] == "partial"
    assert number.name in profile["status_reason"]
    assert "4" not in profile["batch_profiling"]


@pytest.mark.slow
def test_an_interrupt_before_the_batches(command, read_profile):
    process = command.start()
    wait_for(process, "[4/5]")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    # The step may just have been the last thing the signal could hit; then the run is whole.
    profile = read_profile(command.output)
    assert (process.returncode, profile["status"]) in ((4, "partial"), (0, "complete"))


@pytest.mark.slow
def test_second_interrupt_ends_at_once(command, read_profile):
    process = command.start(fault="hang")
    wait_for(process, "Testing batch size: 4")
    # The first save after the interrupt is held up, as by a stalled network disk, by a pipe that nobody reads.
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (4, 130)
    assert_measured(read_profile(command.output), "1")


@pytest.mark.slow
def test_killed_command_leaves_a_valid_file_and_no_worker(command, read_profile):
    process = command.start(fault="hang")
    wait_for(process, "Testing batch size: 4")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert_measured(read_profile(command.output), "1")
    deadline = time.monotonic() + 30  # the kernel ends the worker; seconds are plenty
    while command.left_behind() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("first_full", [0, 3, 5])
def test_full_disk(command, first_full, tmp_path, read_profile):
    """The result goes to standard error when even the temporary folder is full; the last good file stays."""
    command.faults["full_disk_from"] = first_full
    run = command.run()
    assert run.returncode == 4
    assert "No space left on device" in run.stderr
    start = run.stderr.index('{\n  "schema_version"')
    profile, _ = json.JSONDecoder().raw_decode(run.stderr[start:])
    assert_measured(profile, "1", "4", "8")
    if first_full:
        assert read_profile(command.output)["status"] == "partial"
    else:
        assert not command.output.exists()
    assert not list(tmp_path.glob(".profile.json.*"))


@pytest.mark.slow
def test_closed_output(command, read_profile):
    """`| head -1` closes the pipe: the measurements go on, and the file is whole."""
    process = command.start(stderr=subprocess.DEVNULL)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 0
    profile = read_profile(command.output)
    assert profile["status"] == "complete"
    assert_measured(profile, "1", "4", "8")


@pytest.mark.slow
def test_a_killed_second_process_costs_neither_the_first_nor_the_next_size(command, read_profile):
    run = command.run(fault="kill_later", sizes="4,8", runs=SHORT_RUNS)
    assert run.returncode == 0, run.stderr
    profile = read_profile(command.output)
    timing = {size: block["timing"] for size, block in profile["batch_profiling"].items()}
    note = "1 of 3 processes: the next one failed (killed: the measuring process ended by SIGKILL)"
    assert timing["4"]["notes"][0] == note
    assert timing["4"]["num_processes"] == 1
    assert f"({note})" in " ".join(run.stdout.split())  # its lines are wrapped
    for whole in (profile["single_image"]["timing"], timing["8"]):
        assert whole["num_processes"] == 3
        assert sum(whole["runs_by_process"]) == whole["num_runs"] == len(whole["samples_ms"])
    assert run.stdout.count("(3 processes, ") == 2
    assert profile["status"] == "complete"
