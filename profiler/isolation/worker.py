"""The process that answers one request at a time, by a class whose methods `do_<request>` are what it can do; see
`worker_process` for its other side.

It lives apart from the command so that whatever a network does to it (out of memory, a kernel kill, a
segmentation fault, a hang) costs one measurement and not the run. Requests and answers are JSON, one a line,
on two pipes of their own: the network may print what it likes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.machine_failures import machine_failure
from swinmr_profiling.profiler.record.blocks.figures import Block
from swinmr_profiling.profiler.record.failures import classify_exception, first_lines
from swinmr_profiling.stop_signals import STOP_SIGNALS

# Of -1000 to 1000: when memory runs out the kernel takes the process with the most, and this bonus makes sure
# that it is this one, not the command that holds the results (nor the user's other work).
OOM_SCORE_ADJUSTMENT = 1000
PR_SET_PDEATHSIG = 1


def offer_to_kernel() -> None:
    """Makes this process the kernel's first choice when host memory runs out (Linux; elsewhere nothing)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE_ADJUSTMENT))


def die_with_parent() -> None:
    """Has the kernel kill this process when the command dies, however it dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answer(worker: Callable[[], Any], send: Callable[..., None], do: str, **arguments: Any) -> None:
    """Sends the answer to one request: its result, a mistake of the user's, or a classified failure."""
    try:
        result = getattr(worker(), f"do_{do}")(**arguments)
    except Exception as error:  # whatever a network raises is a result to report, never this process's end
        from swinmr_profiling.models.errors import ModelError
        from swinmr_profiling.profiler.measure.machine.devices import DeviceError

        if isinstance(error, (ModelError, DeviceError)):
            send("refused", message=first_lines(str(error)))
        else:
            # Where it comes from says nothing about what the machine refused.
            place = None if machine_failure(error) else traceback.format_exc()
            send("failed", failure=classify_exception(error), traceback=place)
    else:
        send("done", result=result)


def _in_json(value: Any) -> Any:
    """A block or a dataclass of an answer."""
    return value.to_json() if isinstance(value, Block) else vars(value)


def serve(requests: TextIO, answers: TextIO, make: Callable[[Callable[..., None]], Any]) -> None:
    """Answers requests until the command closes its end. make: the one that answers, from what sends events."""

    def send(event: str, **fields: Any) -> None:
        # What the network printed must not wait in a buffer: this process may be killed once it has answered.
        sys.stdout.flush()
        answers.write(json.dumps({"event": event, **fields}, default=_in_json) + "\n")
        answers.flush()

    worker = cache(lambda: make(send))
    # Before it is asked anything: the command does other things meanwhile. What fails is told by what needs it.
    with suppress(Exception):
        worker()
    for line in requests:
        answer(worker, send, **json.loads(line))


def main() -> None:
    """Entry of the process: `main <requests file descriptor> <answers file descriptor> <class that answers>`."""
    replace_unknown_characters()
    die_with_parent()
    offer_to_kernel()
    # The command decides about what reaches its whole group: a measurement must not die before it has been asked to.
    for number in STOP_SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    requests = os.fdopen(int(sys.argv[1]), "r", encoding="utf-8")
    answers = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")
    module, _, name = sys.argv[3].rpartition(".")
    with suppress(BrokenPipeError):  # the command is gone, and nobody is left to tell
        serve(requests, answers, lambda send: getattr(import_module(module), name)(send))
