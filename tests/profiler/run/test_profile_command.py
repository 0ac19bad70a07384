"""Several configs in one run: what one config's end means for the others and for the exit status."""

import json
from pathlib import Path

import pytest

from swinmr_profiling.configs.schema import SystemSection
from swinmr_profiling.configs.writing.atomic_files import OutputError, distinct
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.exports import Exports
from swinmr_profiling.profiler.run import profile_command
from swinmr_profiling.profiler.run.options.command_line import parse_profile_arguments
from tests.made_profiles import partial, profile


@pytest.fixture
def run_several(tmp_path, monkeypatch):
    """Runs `--configs` with made outcomes: an exit status and content by config, or an exception to raise.

    kept: configs whose run measured nothing new and left their file as it was.
    """

    def run(outcomes, *options, kept=()):
        started = []

        def made(parsed, given, config, output, exports):
            started.append(config)
            outcome = outcomes[config]
            if isinstance(outcome, Exception):
                raise outcome
            code, content = outcome
            Path(output).parent.mkdir(parents=True, exist_ok=True)
            Path(output).write_text(json.dumps(content))
            result = ResultFile(output)
            result.kept_earlier = config in kept
            return code, Profile.model_validate(content), result

        monkeypatch.setattr(profile_command, "_profile", made)
        monkeypatch.chdir(tmp_path)
        given = ["--configs", *outcomes, *options]
        return profile_command.profile_several(parse_profile_arguments(given), given), started

    return run


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((5, 5), 5), ((3, 3), 3), ((0, 5), 4), ((0, 3), 4), ((4, 4), 4)]
)
def test_exit_status(run_several, codes, expected):
    outcomes = {f"{number}.json": (code, profile()) for number, code in enumerate(codes)}
    assert run_several(outcomes)[0] == expected


def test_what_one_config_raises_loses_no_other(run_several, capsys):
    outcomes = {
        "a.json": OutputError("a.json: no such file"),
        "b.json": ZeroDivisionError("a bug"),
        "c.json": (0, profile()),
        "d.json": (0, profile()),
    }
    code, started = run_several(outcomes, "--csv", "c.csv")
    assert (code, started) == (4, list(outcomes))
    captured = capsys.readouterr()
    assert "#2 results/profile_d.json" in captured.out
    assert "ZeroDivisionError: a bug" in captured.err
    assert "error: a.json: exit status 2 (a.json: no such file)" in captured.err
    assert Path("c.csv").is_file()


def test_nothing_but_bad_configs_is_bad_input(run_several, capsys):
    code, _ = run_several({"a.json": OutputError("a.json: empty"), "b.json": OutputError("b.json: empty")})
    assert code == 2
    assert "PROFILES COMPARED" not in capsys.readouterr().out


def test_an_interruption_ends_the_whole_run_and_keeps_what_is_there(run_several, capsys):
    outcomes = {"a.json": (0, profile()), "b.json": (4, partial()), "c.json": (0, profile())}
    code, started = run_several(outcomes)
    assert (code, started) == (4, ["a.json", "b.json"])
    captured = capsys.readouterr()
    assert "not profiled: c.json" in captured.err
    assert "PROFILES COMPARED" in captured.out


def test_a_stale_profile_is_not_compared(run_several, tmp_path, capsys):
    """A file of an earlier run stands where a failing config would have written."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results/profile_a.json").write_text(json.dumps(profile()))
    run_several({"a.json": OutputError("a.json: empty"), "b.json": (0, profile())})
    assert "profile_a.json" not in capsys.readouterr().out


def test_a_file_that_a_run_left_as_it_was_is_not_compared(run_several, capsys):
    """Nor is the run the less interrupted for it."""
    outcomes = {"a.json": (0, profile()), "b.json": (4, partial()), "c.json": (0, profile())}
    code, started = run_several(outcomes, kept=["b.json"])
    assert (code, started) == (4, ["a.json", "b.json"])
    captured = capsys.readouterr()
    assert "profile_a.json" in captured.out
    assert "profile_b.json" not in captured.out


def test_a_report_that_cannot_be_written_at_the_end_makes_a_done_run_partial(monkeypatch, capsys):
    def full(self, content, name):
        raise OutputError("r.html: cannot be written: No space left on device")

    monkeypatch.setattr(Exports, "write", full)
    made = Profile.model_validate(profile())
    for before, after in ((0, 4), (5, 5)):
        assert profile_command._export(None, Exports(report="r.html"), made, "p.json", before) == after
    assert "No space left" in capsys.readouterr().err


def test_one_file_is_not_given_to_two_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    distinct([("--csv", None), ("--report", None), ("--output", "-"), ("--markdown", "-")])
    same = "--report and --csv name the same file"
    with pytest.raises(OutputError, match=same):
        distinct([("--csv", "a/../x"), ("--report", str(tmp_path / "a/../x"))])
    (tmp_path / "link").symlink_to("x")
    (tmp_path / "file").write_text("")
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    for first, second in (("link", "x"), ("file", "hard")):
        with pytest.raises(OutputError, match=same):
            distinct([("--csv", first), ("--report", second)])
        with pytest.raises(OutputError, match="--csv and the config name the same file"):
            distinct([("--csv", first)], [("the config", second)])
    distinct([("--csv", "other")], [("the first", "file"), ("the second", "hard")])


def test_a_report_shows_the_alternatives_without_being_asked():
    def levers(*more):
        parsed = parse_profile_arguments(["--config", "any.json", *more])
        return parsed.run_options(SystemSection(), ()).training.levers

    assert not levers()
    assert levers("--report", "r.html")
    assert levers("--gpu", "RTX 3090")
