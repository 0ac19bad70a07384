"""The signals that ask a command to end in good order."""

import signal

# Ctrl-C, a batch system's or torchrun's end, a closed terminal; and the warnings that batch systems send before they
# kill: SLURM's --signal and SGE's -notify (USR1, USR2), a processor time that is nearly used up (XCPU).
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
STOP_SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
