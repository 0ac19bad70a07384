"""What building a network can fail with."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from swinmr_profiling.configs.error_words import did_you_mean
from swinmr_profiling.input_error import InputError


class ModelError(InputError):
    """The config names a network that cannot be built; the message is one line for the user."""

    def __init__(self, message: str) -> None:
        # What a library or the user's own class said may be a page.
        super().__init__(message.split("\n", 1)[0])


def refuse_unknown(names: Iterable[str], function: Callable[..., Any], message: str) -> None:
    """Raises ModelError for the first name that is no argument of a function, with the nearest one or all of them.

    message: what stands before these, with `{name}` in the name's place.
    """
    known = [argument for argument in inspect.signature(function).parameters if argument != "self"]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"it takes {', '.join(known)}")
            raise ModelError(f"{message.format(name=name)}: {hint}")
