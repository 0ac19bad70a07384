"""When a run ends before its last step: no more improvement, or a request from outside."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from swinmr_profiling.configs.sections.training import EarlyStoppingSection
from swinmr_profiling.stop_signals import EXIT_SECOND_INTERRUPT, stop_signals_handled
from swinmr_profiling.training.validation.validation import HIGHER_IS_BETTER


@dataclass
class Progress:
    """The best validation so far, and how many have passed since. Saved with every checkpoint."""

    best: float | None = None
    best_step: int | None = None
    validations_without_improvement: int = 0

    def update(self, value: float | None, step: int, section: EarlyStoppingSection) -> bool:
        """Takes a validation's value of `section.metric`; whether it is the best so far.

        A value that is not known (None, NaN) is not an improvement.
        """
        sign = 1 if HIGHER_IS_BETTER[section.metric] else -1
        better = (
            value is not None
            and math.isfinite(value)
            and (self.best is None or sign * (value - self.best) > section.min_delta)
        )
        if better:
            self.best, self.best_step, self.validations_without_improvement = value, step, 0
        else:
            self.validations_without_improvement += 1
        return better

    def is_exhausted(self, section: EarlyStoppingSection) -> bool:
        """Whether early stopping ends the run now."""
        return section.enabled and self.validations_without_improvement >= section.patience


class StopRequest:
    """Set by a signal, read between steps, so that the step under way is finished and saved."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """The stop signals ask for a stop after the step; a second Ctrl-C ends the process at once."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            os._exit(EXIT_SECOND_INTERRUPT)
        request.signal_name = signal.Signals(number).name

    with stop_signals_handled(handle):
        yield request
