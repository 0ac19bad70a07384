"""The command's side of the measuring process: start it, ask it, notice how it ends, and how much memory it holds.

Imports no torch: the command stays small, and never opens a GPU. How much of the host's memory a process holds is
watched from outside as resident memory, never by RLIMIT_AS: CUDA maps address space by the terabyte. Watching needs no
rights, and ends a process before the kernel has to choose one.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil
from pydantic import TypeAdapter
from typing_extensions import Self

from swinmr_profiling.input_error import InputError
from swinmr_profiling.models.host_memory import available_bytes
from swinmr_profiling.process import python_command
from swinmr_profiling.profiler.record.failures import MEMORY_LIMIT, Failure, classify_death, kernel_kills

# The kernel reaps a killed process in milliseconds, but may take seconds to free 20 GB first.
REAPING_S = 30.0
READ_BYTES = 65536
WORKER = "swinmr_profiling.profiler.isolation.worker"
# A process fills one or two gigabytes a second.
INTERVAL_S = 0.1
GIB = 2**30
_allowed_bytes: int | None = None
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Progress:
    """What a process tells before its answer. runs: that have ended. stage: what begins, None where none has a name."""

    runs: int = 0
    stage: str | None = None


class WorkerError(Exception):
    """A request brought no result; `failure` says why, `traceback` is the worker's where there is one."""

    def __init__(self, failure: Failure, traceback: str | None = None) -> None:
        super().__init__(failure.detail)
        self.failure = failure
        self.traceback = traceback


class RequestRefusedError(InputError):
    """The request cannot be met as the user asked it (no such device, no such network): one line."""


def allow(limit_bytes: int | None) -> None:
    """What each process that this one starts from now on may hold; None: what is free when it starts."""
    global _allowed_bytes
    _allowed_bytes = limit_bytes


class MemoryWatch:
    """Of one process and all it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._looked_at = -INTERVAL_S
        self.is_asked_for = _allowed_bytes is not None
        self.limit_bytes = available_bytes() if _allowed_bytes is None else _allowed_bytes

    def held_bytes(self) -> int:
        """Resident memory of the process, and of its children without what they share with it."""
        held = 0
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            held = process.memory_info().rss
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    memory = child.memory_info()
                    held += memory.rss - getattr(memory, "shared", 0)
        return held

    def breach(self) -> Failure | None:
        """What a process that holds more is ended for; looked at every 0.1 s, however often it is called."""
        if time.monotonic() - self._looked_at < INTERVAL_S:
            return None
        self._looked_at = time.monotonic()
        held = self.held_bytes()
        if held <= self.limit_bytes:
            return None
        limit = f"{self.limit_bytes / GIB:,.2f} GiB"
        why = f"that {MEMORY_LIMIT} allows" if self.is_asked_for else f"that were free ({MEMORY_LIMIT})"
        detail = f"the process held {held / GIB:,.2f} GiB, more than the {limit} {why}"
        return Failure("killed", detail, needs_new_process=True)


class LeavesNothing:
    """Use as a context manager: leaving it leaves no process behind."""

    def close(self) -> None:
        """Ends what runs; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class WorkerProcess(LeavesNothing):
    """One measuring process."""

    def __init__(
        self,
        environment: Mapping[str, str | None] | None = None,
        worker: str = "swinmr_profiling.profiler.isolation.measuring_worker.Worker",
    ) -> None:
        """worker: the class that answers in the process.

        environment: variables beside this process's own, there before torch is imported; None takes one away.
        """
        variables = {**os.environ, **(environment or {})}
        self._kills_before = kernel_kills()
        # What a network prints must not mix with a JSON on standard output.
        output = subprocess.DEVNULL
        with suppress(AttributeError, OSError, ValueError):  # a stream without a descriptor
            output = sys.stderr.fileno()
        request_read, self._request_write = os.pipe()
        self._answer_read, answer_write = os.pipe()
        try:
            self.process = subprocess.Popen(
                python_command(WORKER, str(request_read), str(answer_write), worker),
                stdin=subprocess.DEVNULL,
                stdout=output,
                pass_fds=(request_read, answer_write),
                env={name: value for name, value in variables.items() if value is not None},
                # A session of its own: the terminal's Ctrl-C reaches the command alone, and one killpg ends
                # whatever the network started.
                start_new_session=True,
            )
        finally:
            os.close(request_read)
            os.close(answer_write)
        self._buffer = b""
        self._memory = MemoryWatch(self.process.pid)

    def ask(
        self,
        do: str,
        answer: type[Answer],
        timeout_s: float | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        **arguments: Any,
    ) -> Answer:
        """Sends one request and waits for its result, of the type `answer`.

        timeout_s: seconds before the process is killed; None waits for ever.
        Raises WorkerError (also when the process dies or is killed) and RequestRefusedError.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            while True:
                message = self._read_message(deadline)
                if message["event"] == "done":
                    return TypeAdapter(answer).validate_python(message["result"])
                if message["event"] == "refused":
                    raise RequestRefusedError(message["message"])
                if message["event"] == "failed":
                    raise WorkerError(
                        TypeAdapter(Failure).validate_python(message["failure"]), message["traceback"]
                    )
                on_progress(Progress(message.get("runs", 0), message.get("stage")))
        except (EOFError, BrokenPipeError):
            raise WorkerError(self._cause_of_death()) from None
        except TimeoutError:
            self.kill()
            detail = f"no result within {timeout_s:g} s (--timeout); the measuring process was killed"
            raise WorkerError(Failure("killed", detail, True)) from None

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._request_write, data) :]

    def _read_message(self, deadline: float | None) -> Any:
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer_read, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = INTERVAL_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if breach := self._memory.breach():
                    self.kill()
                    raise WorkerError(breach)
                if not selector.select(min(left, INTERVAL_S)):
                    continue
                data = os.read(self._answer_read, READ_BYTES)
                if not data:
                    raise EOFError
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _cause_of_death(self) -> Failure:
        try:
            returncode = self.process.wait(REAPING_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return Failure("crashed", "the measuring process closed its answers and hung", True)
        self._kill_group()
        return classify_death(returncode, kernel_kills() > self._kills_before)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # nobody of the group is left
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the process and all it started, at once."""
        self._kill_group()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(REAPING_S)

    def close(self) -> None:
        """Ends the process and closes the pipes; a second call does nothing."""
        self.kill()
        for name in ("_request_write", "_answer_read"):
            descriptor = getattr(self, name)
            if descriptor is not None:
                os.close(descriptor)
                setattr(self, name, None)
