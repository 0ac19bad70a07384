"""train.py as a user runs it: to the end, interrupted, on two processes, and with every mistake."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.conftest import REPOSITORY, run_command

PATIENCE_S = 240


def train(*arguments, cwd):
    return run_command("train.py", *arguments, "--device", "cpu", cwd=cwd)


def test_trains_to_the_end_and_says_what_it_did(write_config, tmp_path):
    run = train("--config", write_config(), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "batch 2 per device x 1 accumulated x 1 devices = 2 per step; 6 steps" in run.stdout
    assert "loss: 15 spatial + 0.1 frequency" in run.stdout
    assert "k-space simulated" in run.stdout
    assert "step 6 of 6" in run.stdout
    assert "zero-filled" in run.stdout
    assert read_checkpoint(tmp_path / "runs/tiny/checkpoints/last.pth")["step"] == 6
    # The same command again has nothing left to do, and says so without a new checkpoint.
    again = train("--config", write_config(), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "resumed from" in again.stdout
    assert "step 6 of 6" in again.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signal_to_the_whole_group_saves_and_the_same_command_goes_on(write_config, tmp_path, number):
    """A terminal's Ctrl-C and torchrun's SIGTERM reach the loader processes too."""
    config = write_config({"training.total_steps": 100_000, "data.num_workers": 2})
    command = [sys.executable, str(REPOSITORY / "train.py"), "--config", str(config), "--device", "cpu"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = tmp_path / "runs/tiny/logs/log.jsonl"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not (log.exists() and len(log.read_text().splitlines()) > 3):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4, err
    assert f"stopped by {signal.Signals(number).name}" in out
    assert "Traceback" not in err
    step = read_checkpoint(tmp_path / "runs/tiny/checkpoints/last.pth")["step"]
    assert step >= 3
    config = write_config({"training.total_steps": step + 2})
    run = train("--config", config, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert f"step {step + 2} of {step + 2}" in run.stdout


@pytest.mark.slow
def test_two_processes_equal_one_on_the_same_global_batch(write_config, tmp_path):
    """Plain gradient descent with rate 1: the change of the weights is the gradient."""
    common = {
        "training.total_steps": 1,
        "training.optimizer": {"type": "sgd", "lr": 1.0, "momentum": 0.0},
        "training.scheduler": {"type": "none"},
        "training.gradient": {},
        "model.drop_path_rate": 0.0,
        "data.augmentation": {"random_flip": True},
        "system.threads": 1,
    }
    one = write_config({**common, "experiment_name": "one", "data.batch_size": 2}, "one.json")
    two = write_config({**common, "experiment_name": "two", "data.batch_size": 1}, "two.json")
    start = write_config({**common, "experiment_name": "start", "training.optimizer.lr": 1e-30}, "start.json")
    for config in (one, start):
        run = train("--config", config, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*torchrun, str(REPOSITORY / "train.py"), "--config", str(two), "--device", "cpu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 0, run.stderr
    assert "batch 1 per device x 1 accumulated x 2 devices = 2 per step" in run.stdout
    assert run.stdout.count("step 1 of 1") == 1  # one process speaks
    weights = {
        name: read_checkpoint(tmp_path / f"runs/{name}/checkpoints/last.pth")["params"]
        for name in ("one", "two", "start")
    }
    largest = worst = 0.0
    for key, before in weights["start"].items():
        gradient = before - weights["one"][key]
        largest = max(largest, gradient.abs().max().item())
        worst = max(worst, (weights["two"][key] - weights["one"][key]).abs().max().item())
    assert largest > 0.1
    assert worst / largest < 1e-5


def refused(run, *words, code=2):
    assert run.returncode == code, (run.returncode, run.stdout, run.stderr)
    errors = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, run.stderr
    assert "Traceback" not in run.stderr
    assert all(word in errors[0] for word in words), errors[0]


def test_missing_config(tmp_path):
    refused(train("--config", "none.json", cwd=tmp_path), "none.json")


@pytest.mark.slow
def test_empty_and_missing_folders(write_config, tmp_path):
    folder = tmp_path / "data"
    config = write_config({"data.source": "auto", "data.train_dir": "data"})
    refused(train("--config", config, cwd=tmp_path), str(folder))
    folder.mkdir()
    refused(train("--config", config, cwd=tmp_path), str(folder))


def test_volume_smaller_than_the_patch(write_config, tmp_path):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/small.npy", np.ones((3, 12, 40), np.float32))
    config = write_config({"data.source": "npy", "data.train_dir": "data", "data.layout": "slices_first"})
    refused(train("--config", config, cwd=tmp_path), "small.npy", "12 x 40", "16")


@pytest.mark.parametrize("workers", [0, 1])
def test_nan_slice_names_its_file(write_config, tmp_path, workers):
    (tmp_path / "data").mkdir()
    volume = np.random.default_rng(0).random((2, 32, 32), np.float32)
    volume[1, 5, 5] = np.nan
    np.save(tmp_path / "data/spoiled.npy", volume)
    config = write_config(
        {"data.source": "npy", "data.train_dir": "data", "data.num_workers": workers, "data.phantom": {}}
    )
    refused(train("--config", config, cwd=tmp_path), "spoiled.npy", "slice 1")


@pytest.mark.slow
def test_checkpoint_of_another_architecture(write_config, tmp_path):
    assert train("--config", write_config({"training.total_steps": 1}), cwd=tmp_path).returncode == 0
    refused(
        train("--config", write_config({"model.embed_dim": 12}), cwd=tmp_path),
        "another architecture",
        "conv_first",
    )
    # --restart leaves it aside.
    config = write_config({"model.embed_dim": 12, "training.total_steps": 2})
    assert train("--config", config, "--restart", cwd=tmp_path).returncode == 0


def test_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(write_config, tmp_path):
    """A learning rate that blows the weights up: the loss overflows within a few steps."""
    config = write_config(
        {
            "training.optimizer": {"type": "sgd", "lr": 1e30, "momentum": 0.0},
            "training.scheduler": {"type": "none"},
            "training.gradient": {},
            "training.total_steps": 50,
            "training.checkpoint_every_steps": 1,
            "training.validate_every_steps": 1000,
        }
    )
    run = train("--config", config, cwd=tmp_path)
    refused(run, "is not finite", "samples:", "slice", code=4)
    content = read_checkpoint(tmp_path / "runs/tiny/checkpoints/last.pth")
    assert content["step"] >= 1


def test_automatic_batch_size_is_not_guessed(write_config, tmp_path):
    refused(
        train("--config", write_config({"data.batch_size": "auto"}), cwd=tmp_path), "data.batch_size", "auto"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_gpu_that_is_not_there(write_config, tmp_path):
    run = run_command("train.py", "--config", write_config(), "--device", "cuda", cwd=tmp_path)
    refused(run, "--device cuda")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("command", "others"),
    [
        *((name, ("--config", "tiny.json")) for name in ("train.py", "test.py", "validate_setup.py")),
        ("scripts/profile_model.py", ("--config", "tiny.json")),
        ("scripts/generate_image.py", ("--model", "none", "--prompt", "a cat")),
        ("scripts/check_on_gpu.py", ()),
        ("scripts/benchmark_training.py", ()),
    ],
)
def test_a_device_that_is_none_is_refused_in_one_line(command, others, write_config, tmp_path):
    write_config()
    run = run_command(command, *others, "--device", "gpu", cwd=tmp_path)
    assert run.returncode == 2
    assert "'gpu': one of auto, cpu, cuda" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_a_run_folder_that_cannot_be_made_is_refused_in_one_line(write_config, tmp_path):
    (tmp_path / "runs").write_text("a file")
    run = train("--config", write_config(), cwd=tmp_path)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert "runs" in run.stderr
