"""How much memory the host, or the cgroup this process lives in, can still give."""

from __future__ import annotations

from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_CGROUP = Path("/proc/self/cgroup")


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None  # "max", or no such file: no limit


def _reclaimable(stat_file: Path) -> int:
    """File cache that the kernel gives up before it kills, which the cgroup's usage includes."""
    try:
        lines = stat_file.read_text().splitlines()
        fields = dict(line.split(maxsplit=1) for line in lines if line.strip())
        return int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))
    except (OSError, ValueError):
        return 0


def cgroup_available_bytes() -> int | None:
    """Bytes left under this process's memory cgroup, or None without a limit."""
    left = []
    for limit_file in cgroup_files("memory.max", "memory.limit_in_bytes"):
        limit = _number(limit_file)
        used_name = "memory.current" if limit_file.name == "memory.max" else "memory.usage_in_bytes"
        used = _number(limit_file.with_name(used_name))
        if limit is not None and used is not None:
            used -= min(_reclaimable(limit_file.with_name("memory.stat")), used)
            left.append(max(limit - used, 0))
    return min(left) if left else None


def available_bytes() -> int:
    """Bytes this process may still take without swapping: the kernel's estimate, under the cgroup's limit."""
    machine = psutil.virtual_memory().available
    cgroup = cgroup_available_bytes()
    return machine if cgroup is None else min(machine, cgroup)


def cgroup_files(version2: str, version1: str) -> list[Path]:
    """This process's cgroup files of that name, version 2 and version 1, where they exist."""
    try:
        lines = PROC_CGROUP.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            folder = CGROUP_ROOT / path.lstrip("/")
            files += [folder / version2, CGROUP_ROOT / version2]
        elif "memory" in controllers.split(","):
            folder = CGROUP_ROOT / "memory" / path.lstrip("/")
            files += [folder / version1, CGROUP_ROOT / "memory" / version1]
    return [file for file in dict.fromkeys(files) if file.is_file()]
