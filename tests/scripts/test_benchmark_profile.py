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


def test_an_answer_is_held_against_the_imports_before_and_after_it(monkeypatch, capsys):
    """The traces that the second answer leaves are those of the third; the large config has a folder of its own."""
    from swinmr_profiling.scripts import benchmark_profile

    imports = iter([9.0, 2.0, 4.0, 2.0, 2.0, 6.0])  # the first one warms the disk's cache
    folders = []

    def answer(config, options, cache):
        assert config.is_file()
        folders.append(cache)
        return 12.0

    monkeypatch.setattr(benchmark_profile, "seconds_to_import", lambda: next(imports))
    monkeypatch.setattr(benchmark_profile, "seconds_to_answer", answer)
    benchmark_profile.print_answers()
    lines = capsys.readouterr().out.splitlines()
    assert [
        re.search(r"= +([\d.]+) imports of ([\d.]+) s \(goal ([\d.]+)\)", line).groups() for line in lines[:4]
    ] == [
        ("4.00", "3.00", "2.5"),
        ("4.00", "3.00", "5"),
        ("6.00", "2.00", "3"),
        ("3.00", "4.00", "20"),
    ]
    assert folders[0] == folders[1] == folders[2] != folders[3]


@pytest.mark.slow  # imports torch twice
def test_the_answer_of_a_tiny_config_is_waited_for_and_no_longer(tiny_config, tmp_path):
    from swinmr_profiling.scripts.benchmark_profile import seconds_to_answer

    assert 0 < seconds_to_answer(tiny_config(), ["--no-training"], str(tmp_path / "cache")) < 300
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(RuntimeError, match="ended with 2 and without an answer"):
        seconds_to_answer(tmp_path / "bad.json", [], str(tmp_path / "cache"))
