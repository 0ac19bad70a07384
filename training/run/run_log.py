"""What a run writes down while it runs: a line of JSON per record, and TensorBoard's event files."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from swinmr_profiling.training.optional_packages import require

LOG_NAME, EVENT_FILES = "log.jsonl", "events.out.tfevents.*"


def finite_or_none(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is not a number is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _set_aside(folder: Path) -> None:
    files = [file for pattern in (LOG_NAME, EVENT_FILES) for file in folder.glob(pattern)]
    if files:
        numbers = itertools.count(1)
        aside = next(path for n in numbers if not (path := folder / f"before_restart_{n}").exists())
        aside.mkdir()
        for file in files:
            os.replace(file, aside / file.name)


class RunLog:
    """Appends to `log.jsonl` and, where asked, to TensorBoard. Each record names its kind and step."""

    def __init__(
        self, folder: Path, *, tensorboard: bool, images: bool, first_step: int = 0, anew: bool = False
    ) -> None:
        """first_step: a resumed run's; TensorBoard hides what an interrupted run wrote beyond it.

        anew: what an earlier run wrote is moved into a folder `before_restart_N`, because its steps are others.

        Raises DataError when TensorBoard is asked for and not installed, OSError for a folder that cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if anew:
            _set_aside(folder)
        self._file = (folder / LOG_NAME).open("a", encoding="utf-8")
        self._images = images
        self._writer = None
        if tensorboard:
            require("tensorboard", "logging.tensorboard")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder), purge_step=first_step or None)

    def record(self, kind: str, step: int, **values: Any) -> None:
        """One record: numbers go to TensorBoard as `kind/name` too."""
        line = {"kind": kind, "step": step, **{name: finite_or_none(value) for name, value in values.items()}}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    self._writer.add_scalar(f"{kind}/{name}", value, step)

    def image(self, name: str, step: int, image: Tensor) -> None:
        """One image (C, H, W) with C 1 or 3, values 0 to 1, to TensorBoard."""
        if self._writer is not None and self._images:
            self._writer.add_image(name, image.clamp(0, 1), step)

    def close(self) -> None:
        """Writes out what is buffered."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()
