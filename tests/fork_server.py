"""Commands of this project in processes forked from one that has imported torch, for tests of what a command does.

A command starts two to four Python processes, and each imports torch: 3 to 5 s of processor time that no test is
about. Here one process imports the libraries once, and every command, with every process that it starts, is a fork
of it. The command's code, arguments, streams, folder and environment are its own. What is shared is what had been
imported before, so tests of the start itself, of signals, kills and memory take real processes
(`run_command(..., fresh=True)`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Found in nearly every command, and slow to import. Nothing of this project: its modules are imported by the command.
LIBRARIES = (
    "numpy",
    "torch",
    "torch.distributed.tensor",
    "torch._dynamo",
    "torchvision",
    "timm",
    "pydantic",
    "fvcore.nn",
    "thop",
    "scipy.stats",
    "diffusers",
    "diffusers.models.unets.unet_2d_condition",
    "transformers",
)
LENGTH = struct.Struct("!I")
PRISTINE_PATH: list[str] = []


class ForkingPopen(subprocess.Popen):
    """Starts `python -c code arguments` as a fork of this process; everything else as subprocess does."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        command = [os.fspath(part) for part in args] if isinstance(args, (list, tuple)) else []
        if command[:2] != [sys.executable, "-c"]:
            return super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[3:9]
        start_new_session = rest[14]
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            if start_new_session:
                os.setsid()
            # The code sees its own ends of pipes alone, as after exec: a pipe closes when its one owner dies.
            streams = [p2cread, c2pwrite, errwrite]
            kept = {*pass_fds, 0, 1, 2, *(stream for stream in streams if stream != -1)}
            _close_all_but(kept)
            _become(streams, cwd, dict(os.environ if env is None else env))
            _end(lambda: exec(compile(command[2], "<string>", "exec"), _new_main()), ["-c", *command[3:]])
        self.pid = pid
        self._child_created = True
        # What subprocess does with the child's ends once it runs.
        nothing = getattr(self, "_devnull", None)
        for theirs, ours in ((p2cread, p2cwrite), (c2pwrite, c2pread), (errwrite, errread)):
            if theirs != -1 and ours != -1 and theirs != nothing:
                os.close(theirs)
        if nothing is not None:
            os.close(nothing)
        self._closed_child_pipe_fds = True
        return None


def _close_all_but(kept):
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _new_main():
    """A fresh `__main__`, as a new interpreter has one."""
    import types

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    return module.__dict__


def _become(streams, cwd, environment):
    """Makes this fork a process of its own, as exec does: signals, streams, folder, environment, import path."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        if descriptor not in (-1, number):
            os.dup2(descriptor, number)
    for stream in streams:
        if stream > 2 and stream not in (0, 1, 2):
            with suppress(OSError):
                os.close(stream)
    if cwd is not None:
        os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *PRISTINE_PATH]
    unbuffered = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - they end with the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=unbuffered)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _end(run, arguments):
    """Runs the code of a fork and ends it as an interpreter ends."""
    sys.argv = arguments
    status, dies_of_interrupt = 1, False
    try:
        run()
        status = 0
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            status = leaving.code or 0
        else:
            print(leaving.code, file=sys.stderr)
    except BaseException as error:
        # As an interpreter does: what the program has put in sys.excepthook, and death by SIGINT after Ctrl-C.
        sys.excepthook(*sys.exc_info())
        dies_of_interrupt = isinstance(error, KeyboardInterrupt)
    finally:
        import atexit
        import threading

        with suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if dies_of_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(status & 0xFF)


def _run_script(arguments):
    """`python script arguments`, in this fork."""
    import runpy

    script = arguments[0]
    sys.path[0] = str(Path(script).resolve().parent)
    sys.argv = arguments
    runpy.run_path(script, run_name="__main__")


def serve(listener):
    """Forks one process a request, tells its pid and then its exit status, until the tests are gone."""
    import importlib

    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]
    subprocess.Popen = ForkingPopen
    # Without the folder of the code that started the server, and with no PYTHONPATH of the tests' own.
    inherited = {"", *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    PRISTINE_PATH[:] = [entry for entry in sys.path if entry not in inherited]
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(listener, LENGTH.size, 3)
        except ConnectionError:
            return
        if not message:
            return
        (length,) = LENGTH.unpack(message)
        request = json.loads(_receive(listener, length))
        pid = os.fork()
        if pid == 0:
            listener.close()
            os.setsid()
            _become(descriptors, request["cwd"], request["environment"])
            _end(partial(_run_script, request["arguments"]), request["arguments"])
        for descriptor in descriptors:
            os.close(descriptor)
        listener.sendall(LENGTH.pack(pid))
        if not ends_before(pid, listener):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        listener.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))


def ends_before(pid, connection):
    """Waits for a child's end, or for that of the tests at the connection's other side; whether the child's came first.

    Tests that are killed from outside never send what their command waits for. Where the kernel has no such descriptor
    of a process the command alone is waited for.
    """
    if not hasattr(os, "pidfd_open"):
        return True
    watched = os.pidfd_open(pid)
    ready, _, _ = select.select([watched, connection], [], [])
    os.close(watched)
    return watched in ready


def _receive(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("the fork server is gone")
        data += part
    return data


class ForkServer:
    """The tests' side: started at the first command, ended with the tests."""

    def __init__(self):
        self.connection, theirs = socket.socketpair()
        # One request at a time, whoever asks: the answers have no name.
        self._asked = threading.Lock()
        code = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        code += "import socket; from tests.fork_server import serve\n"
        code += f"sys.path.pop(0); serve(socket.socket(fileno={theirs.fileno()}))"
        self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=(theirs.fileno(),))
        theirs.close()

    def run(self, arguments, cwd, environment, stdin, timeout):
        """Runs a Python file; returns CompletedProcess with text. Raises subprocess.TimeoutExpired."""
        with (
            self._asked,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            open(os.devnull) as nothing,
        ):
            source = nothing if stdin == subprocess.DEVNULL else stdin
            request = {"arguments": arguments, "cwd": str(cwd), "environment": environment}
            data = json.dumps(request).encode()
            streams = [source.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self.connection, [LENGTH.pack(len(data))], streams)
            self.connection.sendall(data)
            (pid,) = LENGTH.unpack(_receive(self.connection, LENGTH.size))
            ready, _, _ = select.select([self.connection], [], [], timeout)
            if not ready:
                os.killpg(pid, signal.SIGKILL)
            (status,) = struct.unpack("!i", _receive(self.connection, 4))
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode())
            if not ready:
                raise subprocess.TimeoutExpired(arguments, timeout, *texts)
            return subprocess.CompletedProcess(arguments, status, *texts)

    def close(self):
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
