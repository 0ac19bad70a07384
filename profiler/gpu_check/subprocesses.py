"""A module's `answer(request)` run in a process of its own: JSON in, JSON out, ended with all it started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel

from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.process import ask_once

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
    try:
        ended = ask_once(module, request.model_dump_json(), timeout_s, environment)
    except TimeoutError as error:
        raise PartFailedError(str(error)) from None
    if ended.answer is None:
        raise PartFailedError(f"the process ended by {ended.how[:ERROR_CHARACTERS]}")
    if ended.answer.get("failed") is not None:
        raise PartFailedError(ended.answer["failed"])
    return answer.model_validate_json(json.dumps(ended.answer))


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
