"""The benchmark of the profiler drives it and prints its figures; what they are is not asserted."""

import re

import pytest

from tests.conftest import run_command


@pytest.mark.slow  # short sizes start two more processes each
def test_cost_is_printed(tiny_config, tmp_path):
    run = run_command(
        "scripts/benchmark_profile.py", "--config", tiny_config(), "--batch-sizes", "1,2", cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    for words in (
        "forward passes",
        "cross-check by fvcore and thop",
        "everything else",
        "peak resident memory",
    ):
        assert re.search(rf"{words}.*\d", run.stdout), run.stdout
    # The command's own process holds no torch: its peak stays far under the 600 MB it may take.
    peak = float(re.search(r"peak resident memory of the command +([\d.]+) MiB", run.stdout)[1])
    assert 10 < peak < 600


@pytest.mark.slow  # short sizes start two more processes each
def test_repeats_compare_intervals(tiny_config, tmp_path):
    run = run_command(
        *("scripts/benchmark_profile.py", "--config", tiny_config(), "--batch-sizes", "1"),
        *("--repeat", "1", "--time-budget", "1"),
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    # On a busy machine a second may be too short for the six runs that an interval takes; then that is said.
    assert re.search(
        r"try 1, batch 1: (\[[\d.]+, [\d.]+\]|-) and .* ms: (overlap|APART|too few runs)", run.stdout
    )
    assert re.search(r"overlapping for every batch size in [01] of 1 tries", run.stdout)


def test_overlap_of_intervals():
    from swinmr_profiling.scripts.benchmark_profile import overlap

    assert overlap([1.0, 2.0], [2.0, 3.0]) is True
    assert overlap([1.0, 2.0], [2.1, 3.0]) is False
    assert overlap([2.1, 3.0], [1.0, 2.0]) is False
    assert overlap(None, [1.0, 2.0]) is None
