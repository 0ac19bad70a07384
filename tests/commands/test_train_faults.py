"""train.py when a step cannot be made: what it says, what it keeps, alone and with others."""

import json
import os

import numpy as np
import pytest

from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.commands.test_train import refused
from tests.conftest import run_command
from tests.training.conftest import TINY_RUN, merged

CHECKPOINTS = "runs/tiny/checkpoints"


@pytest.fixture
def write(tmp_path):
    """Writes ten slices, some of them spoiled, and a config that trains on them."""

    def config(spoiled=(), value=np.nan, **changes):
        (tmp_path / "data").mkdir(exist_ok=True)
        volume = np.random.default_rng(0).random((10, 32, 32), np.float32) + 0.5
        volume[list(spoiled), 5, 5] = value
        np.save(tmp_path / "data/volume.npy", volume)
        data = {"source": "npy", "train_dir": "data", "phantom": {}, "normalisation": "none"}
        raw = merged({**TINY_RUN, "paths": {"root": "runs"}}, changes)
        raw["data"] = {**raw["data"], **data}
        file = tmp_path / "tiny.json"
        file.write_text(json.dumps(raw))
        return file

    return config


def train(config, *arguments, cwd, script="train.py"):
    return run_command(script, "--config", config, "--device", "cpu", *arguments, cwd=cwd, timeout=120)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_slice_ends_the_run_with_its_state_saved(write, tmp_path, workers):
    config = write([6], **{"data.num_workers": workers})
    run = train(config, cwd=tmp_path)
    refused(run, "volume.npy, slice 6", "is saved: ", f"{CHECKPOINTS}/step_")
    step = read_checkpoint(tmp_path / CHECKPOINTS / "last.pth")["step"]
    assert f"the state of step {step} is saved" in run.stderr
    again = train(write(), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"step {step}" in again.stdout


def test_a_loss_that_is_no_number_says_where_the_state_before_it_is(write, tmp_path):
    run = train(write([6], value=1e30), cwd=tmp_path)
    refused(run, "is not finite", "volume.npy, slice 6", "is saved: ", code=4)


def test_skipped_samples_are_listed_at_the_end(write, tmp_path):
    run = train(write([2, 6], **{"data.on_error": "skip"}), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "skipped 2 training slices that cannot be read (data.on_error):" in run.stdout
    for number in (2, 6):
        assert f"  {tmp_path}/data/volume.npy, slice {number}: the image has 1 NaN" in run.stdout


@pytest.mark.parametrize(
    ("value", "status", "words"),
    [(np.nan, 2, "slice 6: the image has"), (1e30, 4, "the loss of step")],
)
def test_two_processes_agree_on_a_bad_sample(write, tmp_path, value, status, words):
    """Only one of them meets it; the other would have waited for its gradients until a time-out."""
    config = write([6], value, **{"data.batch_size": 1})
    run = train(config, cwd=tmp_path, script="tests/commands/two_processes.py")
    refused(run, words, "volume.npy, slice 6", "is saved: ", code=status)
    assert f"statuses {status} {status}" in run.stdout
    assert len(read_checkpoint(tmp_path / CHECKPOINTS / "last.pth")["random_states"]) == 2


@pytest.mark.slow
def test_two_processes_agree_on_what_is_skipped(write, tmp_path):
    config = write([2, 6], **{"data.batch_size": 1, "data.on_error": "skip"})
    run = train(config, cwd=tmp_path, script="tests/commands/two_processes.py")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("skipped 2 training slices") == 1
    assert len(read_checkpoint(tmp_path / CHECKPOINTS / "last.pth")["skipped"]) == 2
    limited = write([2, 6], **{"data.batch_size": 1, "data.on_error": "skip", "data.max_skipped_samples": 1})
    run = train(limited, "--restart", cwd=tmp_path, script="tests/commands/two_processes.py")
    refused(run, "more than 1 samples cannot be read")
    assert "statuses 2 2" in run.stdout


def test_a_restart_begins_its_log_anew(write, tmp_path):
    config = write(**{"training.total_steps": 3, "logging.tensorboard": True})
    assert train(config, cwd=tmp_path).returncode == 0
    logs = tmp_path / "runs/tiny/logs"
    before = (logs / "log.jsonl").read_text()
    assert train(config, "--restart", cwd=tmp_path).returncode == 0
    steps = [json.loads(line)["step"] for line in (logs / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]
    assert (logs / "before_restart_1/log.jsonl").read_text() == before
    assert len(list(logs.glob("events.out.tfevents.*"))) == 1
    assert len(list(logs.glob("before_restart_1/events.out.tfevents.*"))) == 1


@pytest.mark.slow
def test_a_pipe_named_like_a_checkpoint_is_passed_over(write, tmp_path):
    config = write(**{"training.total_steps": 2})
    assert train(config, cwd=tmp_path).returncode == 0
    folder = tmp_path / CHECKPOINTS
    os.mkfifo(folder / "step_000000009.pth")
    (folder / "step_000000008.pth").mkdir()
    run = train(write(**{"training.total_steps": 4, "training.keep_checkpoints": 1}), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "step_000000009.pth is not an ordinary file; going back to the one before" in run.stdout
    assert "step_000000008.pth is a folder; going back to the one before" in run.stdout
    assert "step 4 of 4" in run.stdout
    os.mkfifo(tmp_path / "data/another")
    os.mkfifo(tmp_path / "data/volume.h5")
    run = train(write(**{"training.total_steps": 5}), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
