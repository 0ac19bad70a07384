"""Limits put on processes that are under way: descriptors, address space, memory of a cgroup."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

NO_DESCRIPTOR, NO_MEMORY = errno.EMFILE, errno.ENOMEM
CGROUPS = Path("/sys/fs/cgroup")
# What the command may still take: less than the smallest block of tensors or of Python's own allocator.
MARGIN_BYTES = 256 * 1024


def with_children(pid: int) -> list[int]:
    """The process and all that it has started, it first."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return [pid]


def close_descriptors(processes: list[int]) -> None:
    """No process may open another file, pipe or socket."""
    for pid in processes:
        with suppress(OSError):
            used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
            # The lowest free number is the next one.
            free = next(number for number in range(len(used) + 1) if number not in used)
            hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))


def freeze_address_space(processes: list[int]) -> None:
    """No process may map more than it has (none of them has opened CUDA, which reserves address space)."""
    for pid in processes:
        with suppress(OSError, psutil.NoSuchProcess):
            hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
            resource.prlimit(pid, resource.RLIMIT_AS, (psutil.Process(pid).memory_info().vms, hard))


@contextmanager
def memory_group(wanted: bool) -> Iterator[Path | None]:
    """A memory cgroup of our own (version 1 or 2); None where it is not wanted or none may be made."""
    root = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    group = root / f"fault_row_{os.getpid()}"
    made = False
    if wanted:
        with suppress(OSError):
            group.mkdir()
            made = _limit_file(group) is not None
    try:
        yield group if made else None
    finally:
        if group.exists():
            with suppress(OSError):
                group.rmdir()


def freeze_memory(group: Path) -> None:
    """The limit becomes what is used now."""
    usage = group / "memory.usage_in_bytes"
    used = int((usage if usage.exists() else group / "memory.current").read_text())
    with suppress(OSError):
        _limit_file(group).write_text(str(used + MARGIN_BYTES))


def kills(group: Path) -> int:
    """How many processes of the group the kernel has killed because memory ran out."""
    file = group / "memory.oom_control"
    file = file if file.exists() else group / "memory.events"
    with suppress(OSError):
        fields = dict(line.split() for line in file.read_text().splitlines())
        return int(fields.get("oom_kill", 0))
    return 0


def _limit_file(group: Path) -> Path | None:
    files = (group / "memory.limit_in_bytes", group / "memory.max")
    return next((file for file in files if file.exists()), None)
