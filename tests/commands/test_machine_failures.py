"""What the machine refuses is one line and status 4; what is a bug keeps its traceback and status 1."""

import errno
import os
import subprocess
import sys

import pytest

from swinmr_profiling.machine_failures import machine_failure
from tests.conftest import REPOSITORY

OF_A_LOADER = """Caught OSError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 1, in loop
OSError: [Errno 24] Too many open files: 'a.npy'
"""


def os_error(number, name=None):
    return OSError(number, os.strerror(number), name)


class OutOfMemoryError(RuntimeError):
    """As torch has one."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (os_error(errno.ENOSPC, "a.csv"), "a.csv: No space left on device: make room on this disk"),
        (os_error(errno.EMFILE), "Too many open files: raise the limit on open files (ulimit -n)"),
        (
            MemoryError(),
            "out of memory: the machine, or the limit this process runs under, has no more memory",
        ),
        (
            OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
            "out of memory (CUDA out of memory. Tried to allocate 2 GiB): the machine, or the limit this process "
            "runs under, has no more memory",
        ),
        (
            RuntimeError("CUDA error: unspecified launch failure\nCompile with ..."),
            "the GPU failed (CUDA error: unspecified launch failure): look at the driver's log, then run the same "
            "command again",
        ),
        (
            RuntimeError(OF_A_LOADER),
            "OSError: [Errno 24] Too many open files: 'a.npy': raise the limit on open files (ulimit -n)",
        ),
        # A bug, of whoever: its place is what matters.
        (os_error(errno.ENOENT, "a"), None),
        (RuntimeError("CUDA error: device-side assert triggered"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("Cannot allocate memory"), None),
        (KeyError("x"), None),
    ],
)
def test_one_line_or_none(error, line):
    assert machine_failure(error) == line


@pytest.mark.parametrize(
    ("raised", "status", "last_line"),
    [
        (
            "OSError(28, 'No space left on device', 'f')",
            4,
            "error: f: No space left on device: make room on this disk",
        ),
        ("KeyError('x')", 1, "KeyError: 'x'"),
    ],
)
def test_the_end_of_a_command(raised, status, last_line, tmp_path):
    code = "import swinmr_profiling.command as command\ndef main(): raise " + raised + "\ncommand.run(main)"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status
    assert done.stderr.splitlines()[-1] == last_line
    assert ("Traceback" in done.stderr) is (status == 1)
