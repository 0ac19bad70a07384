"""Commands under test as forks of a process that has the fault library preloaded and everything imported.

As `tests/fork_server.py`, but many at once, each below a process that inherits whatever it leaves behind: so a process
that outlives its command is seen, whatever it has done to its session or its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests import fork_server
from tests.fork_server import (
    LENGTH,
    LIBRARIES,
    REPOSITORY,
    ForkingPopen,
    _become,
    _end,
    _receive,
    _run_script,
    ends_before,
)

PR_SET_CHILD_SUBREAPER = 36
# Workers end by themselves when the command is gone; the kernel and a loaded machine take their time.
GRACE_S = 15
# Imported by commands as the first thing they do, with an effect on their search path.
WITHOUT_TORCH = ("numpy", "pydantic", "scipy.stats", "jinja2", "swinmr_profiling.profiler.comparing.command")
LEFT_TO_COMMANDS = ("swinmr_profiling.command",)


def serve(listener: socket.socket, lifeline: int, with_torch: bool) -> None:
    """Forks a keeper for every connection, until the tests are gone (the lifeline closes)."""
    import select

    further = ("matplotlib.pyplot", "jinja2", "PIL.Image", "psutil")
    for library in (*LIBRARIES, *further, *_own_modules()) if with_torch else WITHOUT_TORCH:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]
    subprocess.Popen = ForkingPopen
    inherited = {"", str(REPOSITORY), str(REPOSITORY / "src")}
    fork_server.PRISTINE_PATH[:] = [entry for entry in sys.path if entry not in inherited]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are nobody's to wait for
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, lifeline], [], [])
        if lifeline in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _keep(connection)
            finally:
                os._exit(0)
        connection.close()


def _own_modules() -> list[str]:
    import swinmr_profiling

    # Processes of their own are started by these: their `main` is not to be run here, but importing them is harmless.
    found = [module.name for module in pkgutil.walk_packages(swinmr_profiling.__path__, "swinmr_profiling.")]
    rooms = ("swinmr_profiling.configs", "swinmr_profiling.models", "swinmr_profiling.profiler")
    rooms += ("swinmr_profiling.training",)
    return [name for name in found if name.startswith(rooms) and name not in LEFT_TO_COMMANDS]


def _keep(connection: socket.socket) -> None:
    """Runs one command and tells its pid, its exit status, and the processes that it left."""
    import psutil

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    message, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    request = json.loads(_receive(connection, LENGTH.unpack(message)[0]))
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.setsid()
        _become(descriptors, request["cwd"], request["environment"])
        tempfile.tempdir = None  # a library has asked for it before, in another environment
        if request["cgroup"]:
            Path(request["cgroup"], "cgroup.procs").write_text(str(os.getpid()))
        for name, limit in request["limits"].items():
            hard = resource.getrlimit(getattr(resource, name))[1]
            resource.setrlimit(getattr(resource, name), (limit, hard))
        _end(partial(_run_script, request["arguments"]), request["arguments"])
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(LENGTH.pack(pid))
    if not ends_before(pid, connection):
        for process in psutil.Process().children(recursive=True):
            process.kill()
        return
    _, status = os.waitpid(pid, 0)
    connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
    deadline = time.monotonic() + GRACE_S
    while left := _children(psutil):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    names = [" ".join(process.cmdline())[-200:] for process in left]
    for process in left:
        process.kill()
    data = json.dumps(names).encode()
    connection.sendall(LENGTH.pack(len(data)) + data)


def _children(psutil: object) -> list:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


class Running:
    """A command under way: `pid`, then `wait()`."""

    def __init__(
        self, address: str, arguments: list[str], cwd: Path, environment: dict, **options: object
    ) -> None:
        self.arguments = arguments
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        request = {"arguments": arguments, "cwd": str(cwd), "environment": environment}
        request |= {"cgroup": options.get("cgroup"), "limits": options.get("limits", {})}
        data = json.dumps(request).encode()
        with open(os.devnull) as nothing:
            streams = [nothing.fileno(), self._out.fileno(), self._err.fileno()]
            socket.send_fds(self._connection, [LENGTH.pack(len(data))], streams)
        self._connection.sendall(data)
        (self.pid,) = LENGTH.unpack(_receive(self._connection, LENGTH.size))
        self.left_behind: list[str] = []

    def ended(self) -> bool:
        """Whether the command has ended."""
        import select

        return bool(select.select([self._connection], [], [], 0)[0])

    def wait(self, timeout_s: float) -> subprocess.CompletedProcess:
        """Waits for the end. Raises subprocess.TimeoutExpired, the command killed."""
        import select

        in_time = bool(select.select([self._connection], [], [], timeout_s)[0])
        if not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        (status,) = struct.unpack("!i", _receive(self._connection, 4))
        (length,) = LENGTH.unpack(_receive(self._connection, LENGTH.size))
        self.left_behind = json.loads(_receive(self._connection, length))
        self._connection.close()
        texts = []
        for stream in (self._out, self._err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
            stream.close()
        if not in_time:
            raise subprocess.TimeoutExpired(self.arguments, timeout_s, *texts)
        return subprocess.CompletedProcess(self.arguments, status, *texts)


class FaultServer:
    """The tests' side; ends with them."""

    def __init__(self, library: Path, *, with_torch: bool = True) -> None:
        # Names of sockets are short, folders of tests are not.
        self._place = tempfile.TemporaryDirectory(prefix="faults-")
        self.address = f"{self._place.name}/server"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen(16)
        ours, theirs = os.pipe()
        code = (
            f"import sys; sys.path[:0] = [{str(REPOSITORY / 'src')!r}, {str(REPOSITORY)!r}]; import socket\n"
        )
        code += "from tests.faults.fault_server import serve\n"
        code += f"serve(socket.socket(fileno={listener.fileno()}), {ours}, {with_torch})"
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        environment.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=(listener.fileno(), ours),
            env=environment,
            stdout=subprocess.PIPE,
        )
        listener.close()
        os.close(ours)
        self._lifeline = theirs
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the fault server did not start")

    def start(self, arguments: list[str], cwd: Path, environment: dict, **options: object) -> Running:
        """Starts a Python file of the repository."""
        return Running(self.address, arguments, cwd, environment, **options)

    def close(self) -> None:
        os.close(self._lifeline)
        self.process.wait(10)
        self.process.stdout.close()
        self._place.cleanup()
