"""What a run writes down while it runs: a line of JSON per record, and what its loggers are told.

Loggers are TensorBoard, Weights & Biases, MLflow. All but TensorBoard are asked for in `logging.loggers`. What any of
them raises while the run goes on is told once and stops nothing: the figures are in `log.jsonl` in any case.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.training.errors import DataError, first_line, require

# A resumed run goes on in the same run of the service: its name lies beside the log.
ID_FILE = "{}_run_id.txt"


class Logger(Protocol):
    """One place to log to."""

    def scalar(self, name: str, value: float, step: int) -> None:
        """One figure of a step."""

    def image(self, name: str, image: Tensor, step: int) -> None:
        """One image (C, H, W) with C 1 or 3, values 0 to 1."""

    def close(self) -> None:
        """Writes out what is buffered."""


class TensorBoardLogger:
    """Event files in the run's folder. first_step: a resumed run's; what lies beyond it is hidden."""

    def __init__(self, folder: Path, first_step: int) -> None:
        require("tensorboard", "logging.tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=first_step or None)

    def scalar(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)

    def image(self, name: str, image: Tensor, step: int) -> None:
        self._writer.add_image(name, image, step)

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """A run of Weights & Biases; WANDB_MODE, WANDB_PROJECT and the like are the user's (offline: `wandb sync`)."""

    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        self._wandb = require("wandb", 'logging.loggers "wandb"')
        known = _read_id(folder, "wandb")
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "swinmr-profiling"),
            name=name,
            id=known,
            resume="allow" if known else None,
            dir=str(folder),
            config=config,
        )
        _write_id(folder, "wandb", self._run.id)
        # Validations are told of a step after its training figures: W&B's own counter only goes up.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def scalar(self, name: str, value: float, step: int) -> None:
        self._run.log({name: value, "step": step})

    def image(self, name: str, image: Tensor, step: int) -> None:
        self._run.log({name: self._wandb.Image(image.movedim(0, -1).cpu().numpy()), "step": step})

    def close(self) -> None:
        self._run.finish()


class MlflowLogger:
    """A run of MLflow at MLFLOW_TRACKING_URI, else in files in the run's folder (`mlflow ui --backend-store-uri`)."""

    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        require("mlflow", 'logging.loggers "mlflow"')
        from mlflow.tracking import MlflowClient

        place = os.environ.get("MLFLOW_TRACKING_URI") or (folder.resolve() / "mlruns").as_uri()
        self._client = MlflowClient(tracking_uri=place)
        run_id = _read_id(folder, "mlflow")
        if run_id is None:
            wanted = os.environ.get("MLFLOW_EXPERIMENT_NAME", "swinmr-profiling")
            experiment = self._client.get_experiment_by_name(wanted)
            known = None if experiment is None else experiment.experiment_id
            run = self._client.create_run(known or self._client.create_experiment(wanted), run_name=name)
            run_id = str(run.info.run_id)
            _write_id(folder, "mlflow", run_id)
            self._client.log_dict(run_id, config, "config.json")
        self._run_id = run_id

    def scalar(self, name: str, value: float, step: int) -> None:
        self._client.log_metric(self._run_id, name, value, step=step)

    def image(self, name: str, image: Tensor, step: int) -> None:
        grey = image.movedim(0, -1).cpu().numpy()
        self._client.log_image(self._run_id, grey, artifact_file=f"{name}_{step}.png")

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


LOGGERS: dict[str, Callable[[Path, str, dict[str, Any]], Logger]] = {
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def _read_id(folder: Path, service: str) -> str | None:
    file = folder / ID_FILE.format(service)
    return file.read_text(encoding="utf-8").strip() or None if file.is_file() else None


def _write_id(folder: Path, service: str, value: str) -> None:
    (folder / ID_FILE.format(service)).write_text(f"{value}\n", encoding="utf-8")


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
        for logger in dict.fromkeys(loggers):
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
