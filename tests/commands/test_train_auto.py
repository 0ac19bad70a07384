"""`"batch_size": "auto"`, with the real commands: a prediction, then the training that takes its batch size."""

import json

import pytest

from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.conftest import run_command
from tests.training.conftest import TINY_RUN, merged


@pytest.fixture
def auto_config(tmp_path):
    def write(changes=None):
        file = tmp_path / "auto.json"
        sections = {**TINY_RUN, "paths": {"root": "runs"}}
        automatic = {"data.batch_size": "auto", "training.profile": "profile.json", **(changes or {})}
        file.write_text(json.dumps(merged(sections, automatic)))
        return file

    return write


def train(config, *arguments, cwd):
    return run_command("train.py", "--config", config, "--device", "cpu", *arguments, cwd=cwd)


@pytest.mark.slow
def test_the_recommendation_is_trained_with_and_a_stale_profile_stops_it(auto_config, tmp_path):
    config, profile = auto_config(), tmp_path / "profile.json"
    missing = train(config, cwd=tmp_path)
    assert missing.returncode == 2
    assert "there is no profile" in missing.stderr
    assert f"profile_model.py --config {config} --predict-only" in missing.stderr
    made = run_command(
        *("scripts/profile_model.py", "--config", config, "--predict-only", "--cross-check", "off"),
        *("--gpu-memory", "2GiB", "--target-batch", 4, "--device", "cpu", "--output", profile),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    content = json.loads(profile.read_text())
    (entry,) = content["recommendation"]["training"]
    assert (entry["batch_size"], entry["accumulate"], entry["global_batch"]) == (4, 1, 4)
    # As if only two samples fitted: two micro-batches make the four.
    entry.update(batch_size=2, accumulate=2)
    profile.write_text(json.dumps(content))
    run = train(config, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "batch size from" in run.stdout
    assert "batch 2 per device x 2 accumulated x 1 devices = 4 per step; 6 steps" in run.stdout
    saved = read_checkpoint(tmp_path / "runs/tiny/checkpoints/last.pth")["batch_sizes"]
    assert saved["global_batch_size"] == 4
    assert saved["accumulate"] == 2
    other = auto_config({"training.ema_decay": 0.0})
    stale = train(other, cwd=tmp_path)
    assert stale.returncode == 2
    assert "another network, patch, precision, loss or optimizer" in stale.stderr
    assert "Traceback" not in stale.stderr
    assert len(stale.stderr.strip().splitlines()) == 1
    allowed = train(other, "--allow-stale-profile", "--restart", cwd=tmp_path)
    assert allowed.returncode == 0, allowed.stderr
