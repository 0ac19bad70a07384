"""What reading data and building a step can fail with, one line each for the user; and packages that may be missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from swinmr_profiling.input_error import InputError


class DataError(InputError):
    """Data that cannot be used: the message names the file (and slice) and says what to do.

    A loader process hands its exceptions on as "Caught DataError in DataLoader worker process 0." and a
    traceback, in a new exception of the same class; what the user needs is its last line, the message.
    """

    def __init__(self, message: str) -> None:
        if message.startswith("Caught "):
            message = message.strip().rpartition("DataError: ")[2]
        super().__init__(message)


class LossError(InputError):
    """The config names a loss that cannot be built."""


class OptimizerError(InputError):
    """The config names an optimizer that this network, device or installation cannot have."""


class StrategyError(InputError):
    """The config spreads a training over processes in a way that does not go."""


def first_line(error: BaseException) -> str:
    """The first line of what a library said, or the exception's name where it said nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


# What pip calls a module's package, where the names differ.
PACKAGES = {"PIL": "pillow", "mlflow": "mlflow-skinny"}
# Those that are in another extra than `train`.
EXTRAS = {"wandb": "loggers", "mlflow": "loggers"}


def require(module: str, purpose: str) -> ModuleType:
    """The imported module. Raises DataError, which says how to install it, when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        package, extra = PACKAGES.get(top, top), EXTRAS.get(top, "train")
        raise DataError(
            f'{purpose} needs the package {package}: pip install ".[{extra}]", or pip install {package}'
        ) from error
