"""Memory that can still be had, with the files of a machine that does not exist."""

from types import SimpleNamespace

import psutil
import pytest

from swinmr_profiling.models import host_memory
from swinmr_profiling.models.host_memory import available_bytes, cgroup_available_bytes

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 16 GiB available; returns the writer of its cgroup files."""
    monkeypatch.setattr(host_memory, "PROC_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(host_memory, "CGROUP_ROOT", tmp_path / "fs")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=16 * GIB))

    def write(files):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")

    return write


def test_without_a_cgroup_the_machine_decides(machine):
    assert cgroup_available_bytes() is None
    assert available_bytes() == 16 * GIB


def test_no_limit_is_no_limit(machine):
    machine({"cgroup": "0::/job", "fs/job/memory.max": "max", "fs/job/memory.current": GIB})
    assert cgroup_available_bytes() is None
    assert available_bytes() == 16 * GIB


def test_version_2_limits(machine):
    machine({"cgroup": "0::/job", "fs/job/memory.max": 8 * GIB, "fs/job/memory.current": 3 * GIB})
    assert cgroup_available_bytes() == 5 * GIB
    assert available_bytes() == 5 * GIB


def test_version_1_limits(machine):
    machine(
        {
            "cgroup": "4:cpu:/job\n3:memory:/job",
            "fs/memory/job/memory.limit_in_bytes": 4 * GIB,
            "fs/memory/job/memory.usage_in_bytes": GIB,
        }
    )
    assert available_bytes() == 3 * GIB


def test_version_1_without_a_limit_says_a_huge_number(machine):
    machine(
        {
            "cgroup": "3:memory:/job",
            "fs/memory/job/memory.limit_in_bytes": 9223372036854771712,
            "fs/memory/job/memory.usage_in_bytes": GIB,
        }
    )
    assert available_bytes() == 16 * GIB


def test_the_machine_decides_where_the_limit_is_larger(machine):
    machine({"cgroup": "0::/job", "fs/job/memory.max": 64 * GIB, "fs/job/memory.current": 0})
    assert available_bytes() == 16 * GIB


def test_the_tightest_of_several_limits_decides(machine):
    machine(
        {
            "cgroup": "0::/job",
            "fs/job/memory.max": 8 * GIB,
            "fs/job/memory.current": GIB,
            "fs/memory.max": 6 * GIB,
            "fs/memory.current": 4 * GIB,
        }
    )
    assert available_bytes() == 2 * GIB


def test_file_cache_that_the_kernel_gives_up_counts_as_available(machine):
    machine(
        {
            "cgroup": "0::/job",
            "fs/job/memory.max": 8 * GIB,
            "fs/job/memory.current": 8 * GIB,
            "fs/job/memory.stat": f"anon {2 * GIB}\nfile {6 * GIB}\ninactive_file {5 * GIB}\nactive_file {GIB}",
        }
    )
    assert available_bytes() == 5 * GIB


def test_file_cache_of_version_1_is_the_hierarchys(machine):
    machine(
        {
            "cgroup": "3:memory:/job",
            "fs/memory/job/memory.limit_in_bytes": 8 * GIB,
            "fs/memory/job/memory.usage_in_bytes": 7 * GIB,
            "fs/memory/job/memory.stat": f"inactive_file {GIB}\ntotal_inactive_file {2 * GIB}",
        }
    )
    assert available_bytes() == 3 * GIB


def test_usage_above_the_limit_leaves_nothing(machine):
    machine({"cgroup": "0::/job", "fs/job/memory.max": GIB, "fs/job/memory.current": 2 * GIB})
    assert available_bytes() == 0


def test_a_limit_without_a_usage_is_not_guessed_at(machine):
    machine({"cgroup": "0::/job", "fs/job/memory.max": GIB})
    assert available_bytes() == 16 * GIB
