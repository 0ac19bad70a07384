"""Imported first by every command: takes the command's folder off sys.path, and says how a stop signal ends it.

With train.py that folder is the checkout: `import models` in the user's own network would find ours. With scripts/ it
holds commands, nobody's to import. Nothing happens where a command is imported, not run.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import NoReturn

from swinmr_profiling import CHECKOUT
from swinmr_profiling.input_error import InputError
from swinmr_profiling.machine_failures import leave_descriptors_to_the_end, machine_failure
from swinmr_profiling.stop_signals import STOP_SIGNALS

# EXIT_PARTIAL, of every interrupted run, and EXIT_BAD_INPUT of profiler.options.exit_codes, not imported yet.
EXIT_INTERRUPTED = 4
EXIT_BAD_INPUT = 2
_HERE = Path(__file__).resolve().parent
_RUN = getattr(sys.modules["__main__"], "__file__", None)
_COMMANDS = () if CHECKOUT is None else (CHECKOUT, CHECKOUT / "scripts")
_IS_RUN = _RUN is not None and (
    _HERE in Path(_RUN).resolve().parents if CHECKOUT is None else Path(_RUN).resolve().parent in _COMMANDS
)


class Stopped(BaseException):
    """A stop signal came where nothing had to be saved. No Exception: no handler of errors may swallow it."""


def _end_now(number: int, frame: FrameType | None) -> NoReturn:
    # Libraries are being imported, some of which swallow every exception: no file is open yet.
    os.write(2, f"interrupted by {signal.Signals(number).name}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    if _is_importing(frame):
        _end_now(number, frame)
    raise Stopped(f"interrupted by {signal.Signals(number).name}")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _handle(handler: Callable[[int, FrameType | None], NoReturn]) -> None:
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays as it is
            signal.signal(number, handler)


def entry_point(main: Callable[[list[str]], int]) -> Callable[..., int]:
    """`main(arguments)` as a command calls it: without arguments those of the process; an InputError is one line."""

    @wraps(main)
    def called(arguments: list[str] | None = None) -> int:
        from swinmr_profiling.configs.writing.standard_streams import complain, replace_unknown_characters

        replace_unknown_characters()
        try:
            return main(sys.argv[1:] if arguments is None else arguments)
        except InputError as error:
            complain(f"error: {error}")
            return EXIT_BAD_INPUT

    return called


def run(main: Callable[[], int]) -> NoReturn:
    """Runs a command and ends the process with its exit status.

    A stop signal that it leaves to us is one line, and so is what the machine refused it.
    """
    _handle(_raise)
    try:
        status = main()
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        status = EXIT_INTERRUPTED
    except Exception as error:
        failure = machine_failure(error)
        if failure is None:
            raise
        print(f"error: {failure}", file=sys.stderr)
        status = EXIT_INTERRUPTED
    finally:
        _write_what_is_left()
    _end_quietly()
    sys.exit(status)


def _write_what_is_left() -> None:
    """A reader of standard output that has gone (`--help | head -1`) is no error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Every command has imported it by now; a process that may open no file any more could not.
        streams = sys.modules.get("swinmr_profiling.configs.writing.standard_streams")
        if streams is None:
            raise
        if error.errno in streams.NOBODY_READS:
            streams.leave_unread(sys.stdout)


def _end_quietly() -> None:
    """What libraries do while the process ends is nothing that a user is to read: no file for what they remove, or
    a killed loader process that torch tells of by an exception wherever the interpreter is.
    """
    leave_descriptors_to_the_end()
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def begin() -> None:
    """Before anything slow is imported: a stop signal is one line."""
    _handle(_end_now)


if _IS_RUN:
    begin()
    # Wherever it stands: a PYTHONPATH that names the checkout must not bring it back.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in _COMMANDS]
