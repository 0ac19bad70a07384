"""An earlier result under the default name is kept under one of its own; a private profile names nobody's folders."""

import json
import os
from pathlib import Path

import pytest

from swinmr_profiling.profiler.record.files.earlier_results import keep_earlier
from swinmr_profiling.profiler.record.files.private_record import NOT_RECORDED, private_content, relative_path
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.record.profile import Profile
from tests.made_profiles import profile as made_profile

EARLIER = '{"config": {"config_file": "configs/own net.json"}}'


@pytest.fixture
def default(tmp_path, monkeypatch):
    """The default file with a result in it, written in the second 1,700,000,000."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "results/profile_results.json"
    file.parent.mkdir()
    file.write_text(EARLIER)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    return file


def test_the_earlier_result_keeps_its_content_and_time(default):
    import time

    time.tzset()
    kept = keep_earlier(default)
    # 1,700,000,000 s are 14 November 2023, 22:13:20 UTC.
    assert kept == default.with_name("profile_own_net_20231114-221320.json")
    assert kept.read_text() == EARLIER
    assert kept.stat().st_mtime == 1_700_000_000
    # The file itself stays until it is replaced: no moment is without it.
    assert default.read_text() == EARLIER
    assert keep_earlier(default).name == "profile_own_net_20231114-221320_2.json"


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"config": 3}', '{"config": {"config_file": null}}'])
def test_what_is_no_profile_is_kept_by_its_own_name(default, text):
    default.write_text(text)
    kept = keep_earlier(default)
    assert kept.name.startswith("profile_results_")
    assert kept.read_text() == text


def test_nothing_there_is_nothing_to_keep(tmp_path):
    assert keep_earlier(tmp_path / "none.json") is None
    (tmp_path / "empty.json").touch()
    assert keep_earlier(tmp_path / "empty.json") is None
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_says_what_it_kept_once(default, capsys):
    result = ResultFile("results/profile_results.json", keeps_earlier=True)
    result.prepare()
    assert result.save({"a": 1})
    assert result.finish({"a": 2}) is None
    assert json.loads(default.read_text()) == {"a": 2}
    (kept,) = [file for file in default.parent.iterdir() if file != default and file.suffix == ".json"]
    assert kept.read_text() == EARLIER
    said = f"the earlier results/profile_results.json is kept as results/{kept.name}\n"
    assert capsys.readouterr().err == said


def test_a_named_file_is_replaced_as_ever(default, capsys):
    result = ResultFile(str(default))
    result.prepare()
    assert result.finish({"a": 2}) is None
    assert [file.name for file in default.parent.iterdir() if file.suffix == ".json"] == [default.name]
    assert capsys.readouterr().err == ""


def test_where_it_cannot_be_kept_it_is_not_replaced(default, monkeypatch):
    def refuse(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("swinmr_profiling.profiler.record.files.result_file.keep_earlier", refuse)
    result = ResultFile(str(default), keeps_earlier=True)
    result.prepare()
    assert result.save({"a": 1}) is False
    assert "No space left" in result.finish({"a": 2})
    assert default.read_text() == EARLIER


def test_a_private_profile_names_no_folder_command_or_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    content = made_profile(config_file=str(tmp_path / "configs/own.json"))
    content["environment"] |= {
        "executable": "/home/somebody/venv/bin/python",
        "command_line": "profile /secret",
    }
    content["config"]["resolved"] = {"paths": {"root": "/home/somebody/runs"}, "data": {"train_dir": "a/b"}}
    content["warnings"] = [
        {"code": "x", "message": f"{tmp_path}/net.py failed, /home/somebody/y too", "batch_size": None}
    ]
    private = private_content(content)
    assert private["config"]["config_file"] == "configs/own.json"
    assert private["config"]["resolved"] == {"paths": {"root": "runs"}, "data": {"train_dir": "a/b"}}
    assert private["environment"]["command_line"] == private["environment"]["executable"] == NOT_RECORDED
    assert private["environment"]["platform"] == NOT_RECORDED
    assert private["warnings"][0]["message"] == "net.py failed, ~/y too"
    text = json.dumps(private)
    assert str(tmp_path) not in text
    assert "somebody" not in text
    # Every figure is as it was, and it is a profile still.
    for name in ("architecture", "single_image", "batch_profiling"):
        assert private[name] == content[name]
    Profile.model_validate(private)


def test_paths_below_the_working_folder_are_shown_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert relative_path(tmp_path / "results/a.json") == "results/a.json"
    assert relative_path("results/a.json") == "results/a.json"
    elsewhere = Path(tmp_path.anchor) / "elsewhere.json"
    assert relative_path(elsewhere) == str(elsewhere)
