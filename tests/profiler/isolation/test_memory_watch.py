"""A process that holds more of the host's memory than it may is ended, and its size counts as out of memory."""

import json
import os
import subprocess
import sys

import pytest

from swinmr_profiling.profiler.isolation import worker_process
from swinmr_profiling.profiler.isolation.worker_process import MemoryWatch, allow
from swinmr_profiling.profiler.record.failures import Failure, says_memory

MIB = 2**20
# Holds 200 MiB in itself and 200 MiB in a child.
HOLDER = """
import os, sys
held = bytearray(os.urandom(1) * (200 * 2**20))
if os.fork() == 0:
    more = bytearray(b"x" * (200 * 2**20))
    os.write(1, b"ready\\n")
sys.stdin.readline()
"""
GROWING = """
import torch
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 1)
    def forward(self, x):
        if x.shape[0] == 1:
            return self.layer(x)
        held = []
        while True:  # until it is ended
            held.append(torch.ones(2**24))
"""


@pytest.fixture
def allowed():
    yield allow
    allow(None)


@pytest.mark.slow
def test_what_a_process_and_its_children_hold_is_seen(allowed):
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        allowed(300 * MIB)
        watch = MemoryWatch(process.pid)
        assert 400 * MIB <= watch.held_bytes() < 700 * MIB
        breach = watch.breach()
        assert breach.error == "killed"
        assert "more than the 0.29 GiB that --memory-limit allows" in breach.detail
        allowed(700 * MIB)
        assert MemoryWatch(process.pid).breach() is None
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_without_a_limit_it_is_what_was_free(monkeypatch):
    monkeypatch.setattr(worker_process, "available_bytes", lambda: 1)
    breach = MemoryWatch(os.getpid()).breach()
    assert "that were free (--memory-limit)" in breach.detail
    assert breach.is_of_memory
    assert MemoryWatch(2**22 + 1).held_bytes() == 0  # a process that is gone holds nothing


def test_what_counts_as_memory():
    assert says_memory("OOM", "any words")
    assert says_memory("killed", "the process held 2 GiB, more than the 1 GiB that --memory-limit allows")
    assert not says_memory("killed", "the measuring process ended by SIGKILL")
    assert not says_memory("exception", "--memory-limit")
    assert not says_memory(None, None)
    assert not Failure("killed", "no result within 3 s (--timeout)").is_of_memory


def test_a_size_over_the_limit_is_a_result(profile_model, custom_config, tmp_path, read_profile):
    """Batch 2 is ended at the limit, batch 4 is not tried; batch 1 ran, so the run is done."""
    run = profile_model(
        "--config", custom_config(GROWING), "--trust-config", "--device", "cpu", "--batch-sizes", "1,2,4",
        "--num-runs", "2", "--memory-limit", "2GiB", "--output", "p.json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["status"] == "complete"
    blocks = profile["batch_profiling"]
    assert "timing" in blocks["1"]
    assert blocks["2"]["error"] == "killed"
    assert "2.00 GiB that --memory-limit allows" in blocks["2"]["detail"]
    assert blocks["4"]["error"] == "skipped"
    assert "Traceback" not in run.stderr
    # Another limit may hold it: what was ended is tried again.
    assert json.loads((tmp_path / "p.json").read_text())["batch_profiling"]["2"]["error"] == "killed"


def test_a_limit_that_is_no_size_is_refused(profile_model, custom_config):
    run = profile_model("--config", custom_config(GROWING), "--memory-limit", "much")
    assert run.returncode == 2
    assert "--memory-limit" in run.stderr
    assert len(run.stderr.splitlines()) == 1
