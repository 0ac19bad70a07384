"""The profile's file: whole or untouched at every moment of failure, and never dropped."""

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from swinmr_profiling.configs.writing.atomic_files import OutputError, write_text
from swinmr_profiling.profiler.record.files.result_file import ResultFile, to_text
from tests.conftest import REPOSITORY

OLD = '{"old": true}\n'
CONTENT = {"latency_ms": 1.5, "name": "µ", "unknown": None}


def no_space(*_arguments, **_options):
    raise OSError(errno.ENOSPC, "No space left on device")


def write_half(path, text, **_options):
    """The disk fills while the file is written."""
    path.write_bytes(text.encode()[: len(text) // 2])
    no_space()


# The step of writing that fails, and how.
STEPS = {
    "opening": ("mkstemp", tempfile, no_space),
    "writing": ("write_text", Path, write_half),
    "syncing": ("fsync", os, no_space),
    "permissions": ("chmod", os, no_space),
    "replacing": ("replace", os, no_space),
}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "out" / "profile.json"
    file.parent.mkdir()
    file.write_text(OLD)
    return file


@pytest.mark.parametrize("step", STEPS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(file, monkeypatch, step):
    name, module, failing = STEPS[step]
    result = ResultFile(str(file))
    with monkeypatch.context() as patch:
        patch.setattr(module, name, failing)
        assert result.save(CONTENT) is False
    assert result.last_error.errno == errno.ENOSPC
    assert file.read_text() == OLD
    assert os.listdir(file.parent) == ["profile.json"]
    # Once there is space again the same object writes, and forgets the error.
    assert result.save(CONTENT) is True
    assert result.last_error is None
    assert json.loads(file.read_text()) == CONTENT


@pytest.mark.parametrize("step", ["syncing", "replacing"])
def test_an_interruption_while_writing_leaves_the_old_file_and_nothing_else(file, monkeypatch, step):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    name, module, _ = STEPS[step]
    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ResultFile(str(file)).save(CONTENT)
    assert file.read_text() == OLD
    assert os.listdir(file.parent) == ["profile.json"]


def test_the_file_is_synced_before_it_takes_the_place_of_the_old_one(file, monkeypatch):
    order = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: order.append(os.fstat(descriptor).st_size))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (order.append("replace"), replace(*names)))
    write_text(file, "12345")
    assert order == [5, "replace"]
    assert file.read_text() == "12345"


def test_the_text_is_json_as_people_read_it():
    text = to_text(CONTENT)
    assert json.loads(text) == CONTENT
    assert text == '{\n  "latency_ms": 1.5,\n  "name": "µ",\n  "unknown": null\n}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_refused(file, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        ResultFile(str(file)).save({"block": [{"std_ms": value}]})
    assert file.read_text() == OLD


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_what_the_umask_leaves(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        assert ResultFile(str(tmp_path / "profile.json")).save(CONTENT)
        assert os.umask(umask) == umask  # as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "profile.json").stat().st_mode) == mode


def test_missing_folders_are_made_and_nothing_is_left_in_them(tmp_path):
    with ResultFile(str(tmp_path / "a" / "b" / "profile.json")) as result:
        result.prepare()
        # While the run lives its claim lies beside the file, also while it writes its reports.
        assert os.listdir(tmp_path / "a" / "b") == [".profile.json.lock"]
        result.finish({"a": 1})
        assert sorted(os.listdir(tmp_path / "a" / "b")) == [".profile.json.lock", "profile.json"]
    assert os.listdir(tmp_path / "a" / "b") == ["profile.json"]
    assert result.save(CONTENT)
    assert os.listdir(tmp_path / "a" / "b") == ["profile.json"]


def test_preparing_leaves_the_last_result(file):
    ResultFile(str(file)).prepare()
    assert file.read_text() == OLD


def test_a_relative_name_stays_where_the_command_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = ResultFile("profile.json")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result.save(CONTENT)
    assert (tmp_path / "profile.json").is_file()


def test_a_long_name_is_written(tmp_path):
    # 250 of the 255 bytes a name may have.
    result = ResultFile(str(tmp_path / ("x" * 245 + ".json")))
    result.prepare()
    assert result.save(CONTENT)


def refusal(output):
    with pytest.raises(OutputError) as caught:
        ResultFile(str(output)).prepare()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"--output {output}: ")
    return message


def test_a_folder_is_refused(tmp_path):
    assert refusal(tmp_path).endswith("is a folder; name a file in it")


def test_a_folder_that_is_a_file_is_refused(file):
    assert "cannot be written: " in refusal(file / "profile.json")
    assert "cannot be written: " in refusal(file / "deeper" / "profile.json")
    assert file.read_text() == OLD


def test_a_name_too_long_is_refused(tmp_path):
    assert refusal(tmp_path / ("x" * 300)).endswith("File name too long")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc on this system")
def test_a_file_system_that_takes_no_files_is_refused():
    assert "cannot be written: " in refusal("/proc/profile.json")


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    def denied(*_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", denied)
    assert refusal(tmp_path / "profile.json").endswith("cannot be written: Permission denied")


def test_a_device_or_a_pipe_is_refused_and_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").endswith("is not an ordinary file; - writes to standard output")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert "not an ordinary file" in refusal("/dev/null")


def test_a_dash_writes_the_final_state_to_standard_output_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result = ResultFile("-")
    result.prepare()
    assert result.name == "standard output"
    assert result.save({"partial": True}) is True
    assert capsys.readouterr().out == ""
    assert result.finish(CONTENT) is None
    captured = capsys.readouterr()
    assert (json.loads(captured.out), captured.err) == (CONTENT, "")
    assert os.listdir(tmp_path) == []


def test_the_final_state_goes_to_the_temporary_folder_where_its_own_is_full(file, tmp_path, monkeypatch):
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    replace = os.replace

    def replace_elsewhere(source, target):
        return no_space() if Path(target).parent == file.parent else replace(source, target)

    monkeypatch.setattr(os, "replace", replace_elsewhere)
    line = ResultFile(str(file)).finish(CONTENT)
    (written,) = spare.glob("*/profile.json")
    assert line == f"{file} cannot be written (No space left on device): the result is in {written}"
    assert json.loads(written.read_text()) == CONTENT
    assert file.read_text() == OLD


def test_the_final_state_goes_to_standard_error_where_no_disk_takes_it(file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fsync", no_space)
    line = ResultFile(str(file)).finish(CONTENT)
    assert "the result is above" in line
    captured = capsys.readouterr()
    assert (captured.out, json.loads(captured.err)) == ("", CONTENT)


def test_the_final_state_is_written_without_a_word_where_all_is_well(file, capsys):
    assert ResultFile(str(file)).finish(CONTENT) is None
    assert json.loads(file.read_text()) == CONTENT
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_standard_output_that_takes_nothing_loses_no_result(tmp_path):
    """A full disk behind it: the result is in the temporary folder, and Python's own exit adds nothing."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from swinmr_profiling.profiler.record.files.result_file import ResultFile\n"
        "result = ResultFile('-'); result.prepare()\n"
        "print(result.finish({'a': 1}), file=sys.stderr); sys.exit(4)\n"
    )
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-c", program, str(REPOSITORY / "src")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    assert run.returncode == 4
    [line] = run.stderr.splitlines()
    assert line.startswith("standard output cannot be written (No space left on device): the result is in ")
    assert json.loads(Path(line.rpartition(" ")[2]).read_text()) == {"a": 1}
