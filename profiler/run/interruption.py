"""Stop signals: the first ends the run in good order, a second Ctrl-C at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from swinmr_profiling.stop_signals import EXIT_SECOND_INTERRUPT, stop_signals_handled


class Interrupted(BaseException):
    """The run was asked to end. Like KeyboardInterrupt no Exception: no handler of errors may swallow it."""


@contextmanager
def interruptible(before_sudden_end: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Turns the first signal into Interrupted; a second Ctrl-C ends the process after `before_sudden_end`.

    Gives a function to call when only saving is left: a first signal that comes later changes nothing.
    A signal that was ignored when we started (nohup) stays ignored. After the first signal all but
    Ctrl-C are ignored, so that the result can be saved.
    """
    received: list[int] = []
    saving = False

    def only_saving_is_left() -> None:
        nonlocal saving
        saving = True

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            if number == signal.SIGINT:
                before_sudden_end()
                os._exit(EXIT_SECOND_INTERRUPT)
            return
        received.append(number)
        if saving:
            return
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    with stop_signals_handled(handle):
        yield only_saving_is_left
