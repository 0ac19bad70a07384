"""A module's `answer(request)` run in a process of its own: JSON in, JSON out, ended with all it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel

from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.process import python_command

ERROR_CHARACTERS = 300
Request = TypeVar("Request", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)


class PartFailedError(Exception):
    """No answer came; one line of why."""


class SkippedError(Exception):
    """There is nothing to answer here; one line of why."""


def ask_module(
    module: str,
    request: BaseModel,
    answer: type[Answer],
    timeout_s: float,
    environment: Mapping[str, str | None] | None = None,
) -> Answer:
    """The answer of `module` to a request. environment: variables to set; None takes one away.

    Raises PartFailedError.
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
        start_new_session=True,
    )
    try:
        out, err = process.communicate(request.model_dump_json(), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise PartFailedError(f"no answer within {timeout_s:.0f} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        last = out.splitlines()[-1]
        failed = json.loads(last).get("failed")
    except (IndexError, ValueError):
        said = (err.strip().splitlines() or ["no output"])[-1][:ERROR_CHARACTERS]
        raise PartFailedError(f"the process ended with status {process.returncode}: {said}") from None
    if failed is not None:
        raise PartFailedError(failed)
    return answer.model_validate_json(last)


def serve(request: type[Request], answer: Callable[[Request], BaseModel]) -> None:
    """The other side: answers the one request on standard input."""
    replace_unknown_characters()
    try:
        result = answer(request.model_validate_json(sys.stdin.read())).model_dump_json(exclude_unset=True)
    except SkippedError as skipped:
        result = json.dumps({"failed": str(skipped)})
    except Exception as error:  # whatever it was, it is the answer
        text = " ".join(str(error).split())[:ERROR_CHARACTERS]
        result = json.dumps({"failed": f"{type(error).__name__}: {text}"})
    print("\n" + result)
