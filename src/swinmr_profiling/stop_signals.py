"""The signals that ask a command to end in good order."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Ctrl-C, a batch system's or torchrun's end, a closed terminal; and the warnings that batch systems send before they
# kill: SLURM's --signal and SGE's -notify (USR1, USR2), a processor time that is nearly used up (XCPU).
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
STOP_SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
# What a shell reports for a process that ended by Ctrl-C.
EXIT_SECOND_INTERRUPT = 130


@contextmanager
def stop_signals_handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """While the block runs the stop signals are `handle`'s; one that was ignored before (nohup) stays ignored."""
    previous = {}
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
