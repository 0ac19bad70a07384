"""`check_on_gpu.py --dry-run`: the real command, small networks, a CPU."""

import importlib.util
import json

import pytest

from swinmr_profiling.profiler.gpu_check.record import GpuCheckRecord
from tests.conftest import REPOSITORY, run_command
from tests.profiler.gpu_check.test_check import row


def run(*options, cwd):
    return run_command("scripts/check_on_gpu.py", *options, cwd=cwd)


@pytest.mark.slow
def test_a_dry_run_of_one_network(tmp_path):
    """Training, inference, the batch that must fail, the search: each with its own process and its prediction."""
    done = run("--dry-run", "--only", "tiny fp32", "--output", "check.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "check.json").read_text())
    rows = {row["name"]: row for row in content["combinations"]}
    training = rows["tiny fp32, training"]
    assert (training["status"], training["measured"]["steps_run"]) == ("measured", 3)
    assert "resident memory" in training["measured"]["kind"]
    # No workspaces without a GPU: the live bytes of a trace and whole blocks of the allocator.
    assert training["predicted"]["allocated_bytes"] >= training["predicted"]["live_bytes"] > 0
    assert training["ratios"]["allocated"] > 1
    failed = rows["tiny fp32, must fail"]
    assert (failed["status"], failed["as_expected"]) == ("OOM", True)
    assert rows["tiny fp32, inference"]["measured"]["num_runs"] == 10
    search = rows["tiny fp32, search"]["search"]
    assert (search["outcome"], search["batch_size"], search["steps_run"]) == ("found", 2, 6)
    assert content["workspaces"] == {"status": "not run", "reason": "there is no GPU"}
    assert content["dry_run"] is True
    assert "dry run" in done.stdout
    assert "tiny fp32, training" in done.stdout


def test_no_time_is_recorded_as_not_run(tmp_path):
    options = ("--dry-run", "--only", "bf16", "--time-budget", "0.001", "--output", "check.json")
    done = run(*options, cwd=tmp_path)
    # Whoever has the GPU for an hour must not take an empty file for a check.
    assert done.returncode == 4, done.stderr
    assert "nothing was measured" in done.stderr
    content = json.loads((tmp_path / "check.json").read_text())
    assert [row["status"] for row in content["combinations"]] == ["not run"]
    assert "0 s are left" in content["combinations"][0]["reason"]


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Runs the command in this process with the contents that a check makes one after the other."""
    spec = importlib.util.spec_from_file_location("check_on_gpu", REPOSITORY / "scripts/check_on_gpu.py")
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)

    def run(*contents):
        class Check:
            def __init__(self, combinations, on_change, **options):
                self.on_change = on_change

            def run(self):
                for content in contents:
                    if isinstance(content, BaseException):
                        raise content
                    self.on_change(content)
                return contents[-1]

        monkeypatch.setattr(command, "GpuCheck", Check)
        monkeypatch.setattr(command, "table", lambda rows: "the table")
        return command.main(["--dry-run", "--output", str(tmp_path / "check.json")])

    return run


def test_a_check_that_measured_nothing_leaves_an_earlier_one(check, tmp_path, capsys):
    def content(**statuses):
        rows = [row(status, name=name) for name, status in statuses.items()]
        return GpuCheckRecord(dry_run=True, time_budget_s=1.0, combinations=rows)

    file = tmp_path / "check.json"
    whole = content(a="measured", b="OOM").to_json()
    assert check(content(), content(a="measured", b="OOM")) == 4
    assert json.loads(file.read_text()) == whole
    with pytest.raises(KeyboardInterrupt):
        check(content(), content(a="crashed"), KeyboardInterrupt())
    assert json.loads(file.read_text()) == whole
    capsys.readouterr()
    assert check(content(), content(a="not run")) == 4
    assert "Nothing new was measured" in capsys.readouterr().out
    assert json.loads(file.read_text()) == whole
    with pytest.raises(KeyboardInterrupt):
        check(content(), content(a="crashed", c="measured"), KeyboardInterrupt())
    assert json.loads(file.read_text()) == content(a="crashed", c="measured").to_json()


def test_bad_use(tmp_path):
    for options, words in (
        (["--dry-run", "--only", "no such name"], "no combination is called so"),
        (["--time-budget", "-1"], "a positive number of seconds"),
    ):
        done = run(*options, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
