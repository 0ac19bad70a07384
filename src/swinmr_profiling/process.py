"""How a module of ours becomes a Python process of its own, and how one is asked a single question."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line of a new interpreter that runs `main` of a module; what it returns is the exit status.

    The process looks for modules where this one does, in the same order: it measures what this one would. `-m` would
    put the working directory first, with whatever packages lie there.
    """
    folders = [str(entry) for entry in sys.path]
    start = f"import sys; sys.path[:] = {folders!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", start, *arguments]


@dataclass(frozen=True)
class Ended:
    """How a process that was asked once ended. answer: the object of its last line, None where that holds none."""

    answer: dict[str, Any] | None
    returncode: int
    last_words: str

    @property
    def how(self) -> str:
        """Its end without an answer: "signal 9: Killed", "exit status 1: ValueError: ..."."""
        number = f"signal {-self.returncode}" if self.returncode < 0 else f"exit status {self.returncode}"
        return f"{number}: {self.last_words}"


def ask_once(
    module: str,
    request: str,
    timeout_s: float,
    environment: Mapping[str, str | None] | None = None,
    *,
    in_our_group: bool = False,
) -> Ended:
    """Starts `module` as a process, gives it one request on standard input, and ends it with all that it started.

    timeout_s: seconds until it is killed. environment: variables to set; None takes one away.
    in_our_group: it ends with whoever ends this process's group, and what it started is not ended by itself.
    Raises TimeoutError, and OSError where it cannot be started.
    """
    variables = {**os.environ, **(environment or {})}
    process = subprocess.Popen(
        python_command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={name: value for name, value in variables.items() if value is not None},
        # One killpg ends whatever it started, and the terminal's Ctrl-C is ours alone to answer.
        start_new_session=not in_our_group,
    )
    try:
        out, err = process.communicate(request, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            (os.kill if in_our_group else os.killpg)(process.pid, signal.SIGKILL)
        process.wait()
    return ended_with(out, err, process.returncode)


def ended_with(out: str, err: str, returncode: int) -> Ended:
    """From what a process wrote to its two streams, and its exit status."""
    answer = None
    with suppress(IndexError, ValueError):
        answer = json.loads(out.strip().splitlines()[-1])
    said = err.strip().splitlines() or ["no message"]
    return Ended(answer if isinstance(answer, dict) else None, returncode, said[-1])
