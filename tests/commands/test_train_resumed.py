"""train.py, test.py and validate_setup.py on a run whose config was edited since its last checkpoint."""

import json
import re

import pytest

from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.commands.test_test import command_of
from tests.training.conftest import TINY_RUN, merged
from tests.training.run.resumed_runs import without_config


@pytest.fixture
def write_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(changes=None):
        file = tmp_path / "tiny.json"
        file.write_text(json.dumps(merged({**TINY_RUN, "paths": {"root": "runs"}}, changes or {})))
        return str(file)

    return write


@pytest.fixture
def command(capsys):
    """Runs a command in this process; returns (exit status, standard output, standard error)."""

    def run(name, *arguments):
        status = command_of(name).main([*arguments, "--device", "cpu"])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def trained(write_config, command, tmp_path):
    """Two steps at 1e-3 with Adam are done; the folder of the checkpoints."""
    assert command("train", "--config", write_config({"training.total_steps": 2}))[0] == 0
    return tmp_path / "runs/tiny/checkpoints"


def last_rate(folder):
    lines = (folder.parent / "logs/log.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "train"][-1]["learning_rate"]


EDITED = {"training.total_steps": 3, "training.optimizer.lr": 1e-4, "training.scheduler.milestones": [5]}


def test_an_edited_recipe_counts_and_is_listed(trained, write_config, command):
    status, out, err = command("train", "--config", write_config(EDITED))
    assert status == 0, err
    assert "step_000000002.pth, step 2\n" in out
    listed = out[out.index("edited since the checkpoint") :].splitlines()[1:4]
    assert listed == [
        "  training.total_steps: 2 -> 3",
        "  training.optimizer.lr: 0.001 -> 0.0001",
        "  training.scheduler.milestones: [4] -> [5]",
    ]
    assert last_rate(trained) == 1e-4


def test_the_checkpoints_recipe_can_be_asked_for(trained, write_config, command, tmp_path):
    """The end of the run is of it too: here there is nothing left to do."""
    config = write_config(
        {**EDITED, "training.optimizer": {"type": "sgd", "lr": 1e-4}, "data.num_workers": 1}
    )
    status, out, err = command("train", "--config", config, "--resume-recipe", "checkpoint")
    assert status == 0, err
    assert "step 2 of 2" in out
    assert "  data.num_workers: 0 -> 1" in out
    kept = out[out.index("kept as the checkpoint was trained") :].splitlines()[1:5]
    assert kept == [
        "  training.total_steps: 2 (the config has 3)",
        '  training.optimizer.type: "adam" (the config has "sgd")',
        "  training.optimizer.lr: 0.001 (the config has 0.0001)",
        "  training.scheduler.milestones: [4] (the config has [5])",
    ]


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"training.optimizer": {"type": "sgd", "lr": 1e-3}}, [], "training.optimizer.type: adam -> sgd"),
        ({"training.optimizer": {"type": "adamw", "lr": 1e-3}}, [], "training.optimizer.type: adam -> adamw"),
        ({"model.img_range": 2.0}, [], "model.img_range: 1.0 -> 2.0"),
        ({"model.img_range": 2.0}, ["--resume-recipe", "checkpoint"], "model.img_range: 1.0 -> 2.0"),
        ({"model.depths": [1]}, [], "another architecture"),
        ({"data.batch_size": 4}, [], "a global batch of 2"),
    ],
)
def test_what_cannot_change_is_one_line(trained, write_config, command, changes, options, words):
    before = {file.name: file.read_bytes() for file in trained.iterdir()}
    status, _, err = command("train", "--config", write_config(changes), *options)
    assert status == 2
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert {file.name: file.read_bytes() for file in trained.iterdir()} == before


def test_a_checkpoint_without_its_config(trained, write_config, command):
    for file in trained.glob("*.pth"):
        without_config(file)
    config = write_config({**EDITED, "evaluation.save_images": False})
    status, _, err = command("train", "--config", config, "--resume-recipe", "checkpoint")
    assert (status, err.count("error: ")) == (2, 1)
    assert "does not say what it was trained with" in err
    status, out, _ = command("test", "--config", config)
    assert status == 0
    assert "note: the checkpoint does not say how its data was prepared" in out
    status, out, _ = command("train", "--config", config)
    assert status == 0
    assert "does not say what it was trained with" in out
    assert last_rate(trained) == 1e-4


def test_a_restart_moves_the_earlier_checkpoints_aside(trained, write_config, command):
    config = write_config({"training.optimizer": {"type": "sgd", "lr": 1e-3}, "training.total_steps": 1})
    status, out, _ = command("train", "--config", config, "--restart")
    assert status == 0
    assert "started anew" in out
    assert read_checkpoint(trained / "before_restart_1/last.pth")["step"] == 2
    assert read_checkpoint(trained / "last.pth")["step"] == 1


def test_what_a_restarted_run_is_gone_on_with(write_config, command):
    """Nothing improves by 1000 dB: the second validation ends the run."""
    stopping = {"enabled": True, "patience": 1, "min_delta": 1000.0}
    changes = {"training.early_stopping": stopping, "training.validate_every_steps": 1}
    config = write_config(changes)
    assert "; the same command goes on from there" in command("train", "--config", config)[1]
    out = command("train", "--config", config, "--restart")[1]
    assert "; the same command without --restart goes on from there" in out


def test_an_unknown_recipe_is_refused(write_config, command):
    with pytest.raises(SystemExit) as ended:
        command("train", "--config", write_config(), "--resume-recipe", "mine")
    assert ended.value.code == 2


def run_folder_line(out):
    return re.sub(r"\s+", " ", out[out.index("run folder") :])


def test_the_setup_says_what_training_will_say(trained, write_config, command):
    others = ("more packages", "training step", "LPIPS", "distributed", "profile", "loss")
    skipped = [word for check in others for word in ("--skip", check)]

    def setup(changes):
        return command("validate_setup", "--config", write_config(changes), *skipped)

    out = setup({"training.total_steps": 2})[1]
    assert "training resumes from" in run_folder_line(out)
    assert "with another config" not in out
    edited = "with another config (training.total_steps: 2 -> 3, training.optimizer.lr: 0.001 -> 0.0001"
    assert edited in run_folder_line(setup(EDITED)[1])
    status, out, _ = setup({"training.optimizer": {"type": "sgd"}})
    assert status != 0
    assert "training.optimizer.type: adam -> sgd" in run_folder_line(out)
