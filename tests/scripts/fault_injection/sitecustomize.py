"""Faults that no network can cause, put into every process of a command under test through PYTHONPATH.

FAULTS is JSON: "vmstat" is a file to read in place of the kernel's counters, "full_disk_from" the number (from 0)
of the first write to disk that finds it full,
"missing_packages" are those that cannot be imported, "hold_import" has a "package" whose import never ends and the
"file" that then names the process.
"""

import errno
import json
import os
import sys
import time
from pathlib import Path

faults = json.loads(os.environ.get("FAULTS", "{}"))

if "vmstat" in faults:
    sys.path.insert(0, str(Path(faults["repository"], "src")))
    import swinmr_profiling.models.host_memory
    import swinmr_profiling.profiler.record.failures

    swinmr_profiling.profiler.record.failures.VMSTAT = Path(faults["vmstat"])
    swinmr_profiling.models.host_memory.PROC_CGROUP = Path("/no/cgroup")

if "full_disk_from" in faults:
    synchronise, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > faults["full_disk_from"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synchronise(descriptor)

    os.fsync = fsync

for package in faults.get("missing_packages", []):
    sys.modules[package] = None


class HoldImport:
    """Stops the process that imports a package, there and then, after it has said in a file which one it is."""

    def find_spec(self, name, path=None, target=None):
        if name == faults["hold_import"]["package"]:
            Path(faults["hold_import"]["file"]).write_text(str(os.getpid()))
            time.sleep(600)


if "hold_import" in faults:
    sys.meta_path.insert(0, HoldImport())
