"""Two runs into one output at once: the second takes another name; nothing that is left over blocks anybody."""

import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from swinmr_profiling.configs.writing import output_claims
from swinmr_profiling.configs.writing.atomic_files import OutputError
from swinmr_profiling.configs.writing.output_claims import claim, claim_free_file, claim_free_folder
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from tests.conftest import REPOSITORY, run_command

HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from swinmr_profiling.configs.writing.output_claims import claim
print(claim(Path(sys.argv[2])) is not None, flush=True)
sys.stdin.readline()
"""


class Holder:
    """Another process that has claimed a file."""

    def __init__(self, file):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(REPOSITORY / "src"), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "True\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_the_second_takes_another_name_and_the_next_the_first(tmp_path, capsys):
    file = tmp_path / "profile.json"
    file.write_text("{}")
    (tmp_path / "profile_2.json").write_text("{}")  # an earlier result, which nobody replaces
    with Holder(file):
        assert claim(file) is None
        found, held = claim_free_file(file)
        assert found == tmp_path / "profile_3.json"
        held.release()
        with ResultFile(str(file)) as result:
            result.prepare()
            assert result.finish({"a": 1}) is None
        assert json.loads((tmp_path / "profile_3.json").read_text()) == {"a": 1}
        line = f"warning: another run is writing {file}: this one writes {tmp_path / 'profile_3.json'}\n"
        assert capsys.readouterr().err == line
        with (
            ResultFile(str(file)) as result,
            pytest.raises(OutputError, match="--resume: another run is writing"),
        ):
            result.prepare(goes_on=True)
    # Killed: its lock file is still there and blocks nobody.
    assert (tmp_path / ".profile.json.lock").exists()
    found, held = claim_free_file(file)
    assert found == file
    held.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "profile.json",
        "profile_2.json",
        "profile_3.json",
    ]


def test_links_to_one_file_are_one_claim(tmp_path):
    (tmp_path / "link.json").symlink_to("profile.json")
    with Holder(tmp_path / "profile.json"):
        assert claim(tmp_path / "link.json") is None


def test_one_process_may_claim_a_file_twice_and_a_fork_holds_nothing(tmp_path):
    file = tmp_path / "last.pth"
    held = claim(file)
    assert claim(file) is held
    waiting, leaving = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:  # as a loader process, which outlives a killed run for some seconds
        leaving.recv()
        os._exit(0)
    os.close(held.descriptor)  # the parent dies: nobody unlocks
    held.descriptor = None
    output_claims._held.clear()
    with Holder(file):
        pass
    waiting.send(None)
    os.waitpid(child, 0)


def test_what_is_no_lock_file_blocks_nobody(tmp_path, monkeypatch):
    (tmp_path / ".a.json.lock").mkdir()
    os.mkfifo(tmp_path / ".b.json.lock")
    for name in ("a.json", "b.json"):
        claim(tmp_path / name).release()
    monkeypatch.setattr(output_claims, "fcntl", None)
    held = claim(tmp_path / "c.json")
    assert held.descriptor is None
    held.release()
    assert not (tmp_path / ".c.json.lock").exists()


def test_a_folder_of_another_run_is_left_to_it(tmp_path):
    (tmp_path / "out").mkdir()
    with Holder(tmp_path / "out/summary.json"):
        folder, held = claim_free_folder(tmp_path / "out", "summary.json")
        assert folder == tmp_path / "out_2"
        held.release()


@pytest.mark.slow
def test_a_second_training_into_one_folder_is_refused(tmp_path):
    """It would go on from the first one's checkpoints and remove them as old ones."""
    from tests.training.conftest import TINY_RUN, merged

    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(merged(TINY_RUN, {"paths": {"root": "runs"}, "training.total_steps": 2})))
    folder = tmp_path / "runs/tiny/checkpoints"
    folder.mkdir(parents=True)
    with Holder(folder / "last.pth"):
        run = run_command("train.py", "--config", config, "--device", "cpu", cwd=tmp_path)
        assert run.returncode == 2
        assert run.stderr == (
            f"error: {folder}: another run is training there: wait for its end, or take another experiment_name\n"
        )
    run = run_command("train.py", "--config", config, "--device", "cpu", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("option", ["--csv", "--chart"])
def test_one_file_for_two_outputs_of_a_pipeline_is_refused(tmp_path, option):
    (tmp_path / "link.json").symlink_to("a.json")
    arguments = ("--pipeline", "sd15", "--output", "a.json", option, "link.json")
    run = run_command("scripts/profile_pipeline.py", *arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr == f"error: {option} and --output name the same file: link.json\n"
