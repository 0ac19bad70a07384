"""What a machine refuses a program: no room, no memory, no file descriptor, a GPU that is gone.

No bug of the program's, so no traceback: every command tells it in one line, where nothing nearer to it has. Nothing is
imported here that could itself be refused.
"""

from __future__ import annotations

import errno
import re
from contextlib import suppress

try:
    import resource  # now: where no file can be opened any more it could not be imported
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# errno -> what to do, in words that follow the system's own.
REMEDIES = {
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "the whole machine has too many files open",
    errno.ENOMEM: "the machine, or the limit this process runs under, has no more memory",
    errno.EAGAIN: "no more processes or threads may be started (ulimit -u)",
    errno.ENOSPC: "make room on this disk",
    errno.EDQUOT: "make room in your quota",
    errno.EROFS: "the file system can only be read",
    errno.EIO: "the disk or the network storage failed",
}
# What torch says of the same, in RuntimeErrors.
_MEMORY = ("can't allocate memory", "Cannot allocate memory", "std::bad_alloc", "unable to mmap")
_DESCRIPTORS = ("Too many open files", "received 0 items of ancdata")
# A process that loads data was killed, most often by the kernel for its memory; torch says so wherever we are then.
_LOADER = re.compile(r"DataLoader worker .*(is killed by signal|exited unexpectedly)")
# A card that fell off the bus, was reset or has broken memory: nothing can be read back from it.
_LOST_GPU = (
    "unspecified launch failure",
    "uncorrectable ECC",
    "GPU is lost",
    "device unavailable",
    "no CUDA-capable device",
    "unknown error",
)


def machine_failure(error: BaseException) -> str | None:
    """One line about a failure of the machine: what, where, what to do; None for any other error."""
    if isinstance(error, OSError):
        remedy = REMEDIES.get(error.errno or 0)
        if remedy is None:
            return None
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}: {remedy}"
    # An error of a loading process brings that process's traceback as its text; what was said is its last line.
    said = (str(error).strip().splitlines() or [""])[-1 if str(error).startswith("Caught ") else 0]
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return f"out of memory{f' ({said})' if said else ''}: {REMEDIES[errno.ENOMEM]}"
    if not isinstance(error, RuntimeError):
        return None
    if "CUDA" in said and any(words in said for words in _LOST_GPU):
        return f"the GPU failed ({said}): look at the driver's log, then run the same command again"
    if _LOADER.match(said):
        return f"a process that loads data is gone ({said}): if memory is short, fewer data.num_workers take less of it"
    for texts, number in ((_MEMORY, errno.ENOMEM), (_DESCRIPTORS, errno.EMFILE)):
        if any(words in said for words in texts):
            return f"{said}: {REMEDIES[number]}"
    return None


def leave_descriptors_to_the_end() -> None:
    """Raises the limit on open files as far as it goes, for a process that ends.

    Where none could be opened any more, what libraries remove at exit is removed then, and is no traceback of theirs.
    """
    if resource is None:
        return
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
