"""What a run writes down while it runs: a line of JSON per record, and what its loggers are told."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

from torch import Tensor

from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.training.errors import DataError, first_line
from swinmr_profiling.training.run.loggers import LOGGERS, Logger, TensorBoardLogger

LOG_NAME, EVENT_FILES = "log.jsonl", "events.out.tfevents.*"
RUN_IDS = "*_run_id.txt"


def finite_or_none(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is not a number is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _set_aside(folder: Path) -> None:
    files = [file for pattern in (LOG_NAME, EVENT_FILES, RUN_IDS) for file in folder.glob(pattern)]
    if files:
        numbers = itertools.count(1)
        aside = next(path for n in numbers if not (path := folder / f"before_restart_{n}").exists())
        aside.mkdir()
        for file in files:
            os.replace(file, aside / file.name)


class RunLog:
    """Appends to `log.jsonl` and, where asked, to loggers. Each record names its kind and step."""

    def __init__(
        self,
        folder: Path,
        *,
        tensorboard: bool,
        images: bool,
        first_step: int = 0,
        anew: bool = False,
        loggers: Sequence[str] = (),
        name: str = "run",
        config: dict[str, Any] | None = None,
    ) -> None:
        """first_step: a resumed run's; TensorBoard hides what an interrupted run wrote beyond it.

        loggers: names of `LOGGERS`, which are told the run's name and config.
        anew: what an earlier run wrote is moved into a folder `before_restart_N`, because its steps are others.

        Raises DataError for a logger that is not installed or does not begin, OSError for a folder that cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if anew:
            _set_aside(folder)
        self._file = (folder / LOG_NAME).open("a", encoding="utf-8")
        self._images = images
        self._loggers: dict[str, Logger] = {}
        if tensorboard:
            self._loggers["TensorBoard"] = TensorBoardLogger(folder, first_step)
        for logger in loggers:
            try:
                self._loggers[logger] = LOGGERS[logger](folder, name, config or {})
            except DataError:
                raise
            except Exception as error:  # no account, no network: better told now than after a night
                raise DataError(f"logging.loggers: {logger} does not begin: {first_line(error)}") from error

    def record(self, kind: str, step: int, **values: Any) -> None:
        """One record: numbers go to the loggers as `kind/name` too."""
        line = {"kind": kind, "step": step, **{name: finite_or_none(value) for name, value in values.items()}}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._tell_each(methodcaller("scalar", f"{kind}/{name}", value, step))

    def image(self, name: str, step: int, image: Tensor) -> None:
        """One image (C, H, W) with C 1 or 3, values 0 to 1, to the loggers."""
        if self._images:
            self._tell_each(lambda logger: logger.image(name, image.clamp(0, 1), step))

    def close(self) -> None:
        """Writes out what is buffered."""
        self._file.close()
        self._tell_each(lambda logger: logger.close())

    def _tell_each(self, tell: Callable[[Logger], object]) -> None:
        """A logger's failure costs its own figures alone: it is told once, and the logger is asked no more."""
        for name, logger in list(self._loggers.items()):
            try:
                tell(logger)
            except (
                Exception
            ) as error:  # a service that is away may raise anything, and hours of training go on
                del self._loggers[name]
                complain(
                    f"warning: {name} takes no more figures ({first_line(error)}): they are in log.jsonl"
                )
