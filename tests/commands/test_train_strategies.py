"""train.py between two processes: as one process on the whole batch, saved in parts, gone on with by one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.conftest import REPOSITORY
from tests.training.conftest import TINY_RUN, merged

PATIENCE_S = 300
STEPS = 20


@pytest.fixture
def write_config(tmp_path):
    def write(name, changes):
        common = {
            "experiment_name": name,
            "training.total_steps": STEPS,
            "training.optimizer.type": "adamw",
            "model.drop_path_rate": 0.0,
            "training.validate_every_steps": 10,
            "training.checkpoint_every_steps": 5,
            "training.keep_checkpoints": 10,
            "system.threads": 1,
        }
        raw = merged({**TINY_RUN, "paths": {"root": "runs"}}, {**common, **changes})
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(raw))
        return str(file)

    return write


def start(processes, config, folder):
    command = str(REPOSITORY / ("tests/commands/two_processes.py" if processes == 2 else "train.py"))
    return subprocess.Popen(
        [sys.executable, command, "--config", config, "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def train(processes, config, folder):
    process = start(processes, config, folder)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


def losses(folder, name):
    """Step -> loss; of steps that were made twice the later one."""
    lines = (folder / f"runs/{name}/logs/log.jsonl").read_text().splitlines()
    return {line["step"]: line["loss"] for line in map(json.loads, lines) if line["kind"] == "train"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp", "zero1"])
def test_two_processes_equal_one_and_one_goes_on(write_config, tmp_path, strategy):
    """Killed after a checkpoint, gone on with by a single process, whose batch is that of the two together."""
    train(1, write_config("one", {"data.batch_size": 4}), tmp_path)
    expected = losses(tmp_path, "one")
    assert sorted(expected) == list(range(1, STEPS + 1))

    two = write_config("two", {"training.strategy": strategy})
    process = start(2, two, tmp_path)
    folder = tmp_path / "runs/two/checkpoints"
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "step_000000010.dcp").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / f"step_{STEPS:09d}.pth").exists()
    shutil.copytree(tmp_path / "runs/two", tmp_path / "runs/again")

    out = train(1, write_config("two", {"training.strategy": strategy, "data.batch_size": 4}), tmp_path)
    assert ".dcp, step 1" in out
    resumed = losses(tmp_path, "two")
    assert resumed == pytest.approx(expected, rel=1e-5)
    # Whole on the first process at the end, as any checkpoint.
    assert read_checkpoint(folder / "last.pth")["step"] == STEPS

    # And by two again, with shards on the host.
    again = write_config("again", {"training.strategy": strategy, "training.fsdp.offload_to_cpu": True})
    assert ".dcp, step 1" in train(2, again, tmp_path)
    assert losses(tmp_path, "again") == pytest.approx(expected, rel=1e-5)
    ours, theirs = (
        read_checkpoint(tmp_path / f"runs/{name}/checkpoints/last.pth")["params"] for name in ("again", "one")
    )
    assert ours.keys() == theirs.keys()
    assert all((ours[key] - theirs[key]).abs().max() < 1e-3 for key in ours)
