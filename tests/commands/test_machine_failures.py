"""What the machine refuses is one line and status 4; what is a bug keeps its traceback and status 1."""

import errno
import os
import signal
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
        (
            RuntimeError("DataLoader worker (pid 31712) is killed by signal: Killed. "),
            "a process that loads data is gone (DataLoader worker (pid 31712) is killed by signal: Killed.): if memory "
            "is short, fewer data.num_workers take less of it",
        ),
        (
            RuntimeError("DataLoader worker (pid(s) 3, 4) exited unexpectedly"),
            "a process that loads data is gone (DataLoader worker (pid(s) 3, 4) exited unexpectedly): if memory is "
            "short, fewer data.num_workers take less of it",
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


def end_of(code, folder):
    """How a command ends whose `main` is in this code."""
    code = f"import swinmr_profiling.command as command\n{code}\ncommand.run(main)"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "TMPDIR": str(folder)}
    given = [sys.executable, "-c", code]
    return subprocess.run(given, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


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
    done = end_of(f"def main(): raise {raised}", tmp_path)
    assert done.returncode == status
    assert done.stderr.splitlines()[-1] == last_line
    assert ("Traceback" in done.stderr) is (status == 1)


NO_DESCRIPTOR = """
import ctypes, os
from multiprocessing.util import get_temp_dir
def main():
    get_temp_dir()  # as a loader's processes have one, removed at exit
    free = os.dup(0)
    os.close(free)
    limits = (ctypes.c_ulong * 2)()
    ctypes.CDLL(None).getrlimit(7, limits)  # RLIMIT_NOFILE; the module resource could not be imported any more
    limits[0] = free
    assert ctypes.CDLL(None).setrlimit(7, limits) == 0
    return 2
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no such limit")
def test_what_libraries_remove_at_exit_is_removed_where_no_file_can_be_opened(tmp_path):
    """Python's own finalizer told it as a traceback, and left its folder."""
    done = end_of(NO_DESCRIPTOR, tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    assert os.listdir(tmp_path) == []


TOLD_AT_EXIT = """
import atexit, os, signal
def told(number, frame): raise RuntimeError("DataLoader worker (pid 8) is killed by signal: Killed. ")
def main():
    signal.signal(signal.SIGCHLD, told)
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGCHLD))
    return 2
"""


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="no such signal")
def test_a_loader_process_that_is_told_of_at_exit_is_told_of_no_more(tmp_path):
    done = end_of(TOLD_AT_EXIT, tmp_path)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="loader processes are forks there")
def test_a_loader_process_that_can_open_no_file_ends_quietly(tmp_path):
    """It hands tensors over by files of a folder that it removes when it ends."""
    code = """
import multiprocessing as mp
from swinmr_profiling.training.data.loader import begin_loader_process
def work():
    begin_loader_process(0)
    lowered()
def main():
    worker = mp.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
    return worker.exitcode
"""
    done = end_of(
        NO_DESCRIPTOR.replace("def main", "def lowered").replace("return 2", "pass") + code, tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == []
