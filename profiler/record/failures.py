"""What went wrong with one batch size: only what is proven to be memory is called out of memory."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from swinmr_profiling.models.host_memory import cgroup_files
from swinmr_profiling.profiler.record.blocks.figures import ErrorKind


@dataclass(frozen=True)
class Failure:
    """Why a batch size has no figures. `needs_new_process`: the process that failed cannot be trusted."""

    error: ErrorKind
    detail: str
    needs_new_process: bool = False
    possibly_memory: bool = False

    @property
    def is_of_memory(self) -> bool:
        """Whether memory was lacking: the device's, the machine's, or what the user allowed."""
        return says_memory(self.error, self.detail)


# In the detail of what was killed at the limit; the option's name.
MEMORY_LIMIT = "--memory-limit"


def says_memory(error: str | None, detail: str | None) -> bool:
    """Whether `error` and `detail` of a block say that memory was lacking: then it is a result, and no failure."""
    return error == "OOM" or (error == "killed" and MEMORY_LIMIT in (detail or ""))


def is_answer(error: str, detail: str) -> bool:
    """Whether a failure answers the question (does it fit? is it worth the time?) and is no defect of the run."""
    return error == "skipped" or says_memory(error, detail)


# The host allocator raises a plain RuntimeError; these are its words (c10/core/impl/alloc_cpu.cpp).
HOST_ALLOCATION = re.compile(r"DefaultCPUAllocator|not enough memory: you tried to allocate", re.IGNORECASE)
# A library that could not get its workspace may be out of memory, or broken: a smaller batch tells. So does the
# driver's own refusal, outside torch's allocator (a context, a pinned buffer, another program's memory).
LIBRARY_ALLOCATION = re.compile(
    r"(CUDNN|CUBLAS|CUSOLVER|CUFFT|CUSPARSE)_\w*ALLOC\w*FAILED|CUDA error: out of memory", re.IGNORECASE
)
# Sizes a kernel cannot be launched or indexed with; more memory would not help.
TOO_LARGE_FOR_KERNEL = re.compile(
    r"invalid configuration argument|canUse32BitIndexMath|more than INT_MAX elements|"
    r"int32 index|too many resources requested for launch|integer out of range",
    re.IGNORECASE,
)
STICKY_CUDA = re.compile(r"CUDA error|device-side assert|illegal memory access|cudaError", re.IGNORECASE)
DETAIL_CHARACTERS = 500


def first_lines(text: str) -> str:
    """The message on one line, cut to a length that fits a report."""
    return " ".join(text.split())[:DETAIL_CHARACTERS]


def classify_exception(error: BaseException) -> Failure:
    """Sorts an exception raised by a forward pass or by making its inputs."""
    # By name as well, so that this module needs no torch.
    names = {cls.__name__ for cls in type(error).__mro__}
    message = str(error)
    # Its words are a whole line for the author of a step, with its place.
    told = bool(message) and "OwnStepError" in names
    detail = first_lines(
        message if told else f"{type(error).__name__}: {message}" if message else type(error).__name__
    )
    if "OutOfMemoryError" in names or isinstance(error, MemoryError) or HOST_ALLOCATION.search(message):
        return Failure("OOM", detail, needs_new_process=True)
    if LIBRARY_ALLOCATION.search(message):
        return Failure(
            "exception",
            f"possibly out of memory: {detail}",
            needs_new_process=True,
            possibly_memory=True,
        )
    if TOO_LARGE_FOR_KERNEL.search(message):
        return Failure("unsupported", detail, needs_new_process=bool(STICKY_CUDA.search(message)))
    sticky = "AcceleratorError" in names or bool(STICKY_CUDA.search(message))
    return Failure("exception", detail, needs_new_process=sticky)


def classify_death(returncode: int, kernel_killed: bool) -> Failure:
    """Sorts a worker that ended by itself. kernel_killed: the kernel's or the cgroup's counter went up."""
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        if -returncode == signal.SIGKILL and kernel_killed:
            return Failure("OOM", "killed by the kernel: out of host memory (SIGKILL)", True)
        crashes = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
        kind: ErrorKind = "crashed" if -returncode in crashes else "killed"
        return Failure(kind, f"the measuring process ended by {name}", True)
    return Failure("crashed", f"the measuring process ended with exit status {returncode}", True)


def confirm_memory(failure: Failure, smaller_size_ran: int | None) -> Failure:
    """A library's allocation failure is out of memory once a smaller batch of the same network has run."""
    if not failure.possibly_memory or smaller_size_ran is None:
        return failure
    return Failure("OOM", f"{failure.detail} (batch {smaller_size_ran} ran)", True)


VMSTAT = Path("/proc/vmstat")


def _counter(file: Path, key: str) -> int:
    try:
        for line in file.read_text().splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == key:
                return int(words[1])
    except (OSError, ValueError):
        pass  # no such counter on this system: then nothing is proven, which 0 says
    return 0


def kernel_kills() -> int:
    """How many processes the kernel has killed for memory so far, on this machine and in this cgroup."""
    total = _counter(VMSTAT, "oom_kill")
    for file in cgroup_files("memory.events", "memory.oom_control"):
        total += _counter(file, "oom_kill")
    return total
