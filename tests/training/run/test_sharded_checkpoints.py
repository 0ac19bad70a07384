"""Folders of checkpoints that several processes wrote: read whole, passed over where damaged, never executed."""

import os
import pickle

import pytest
import torch

from swinmr_profiling.profiler.ranks.fake_ranks import fake_rank
from swinmr_profiling.training.run.checkpoints import CheckpointError, CheckpointFolder
from swinmr_profiling.training.run.sharded_checkpoints import read_sharded

TENSORS = {
    "params.weight": torch.arange(6.0).reshape(2, 3),
    "params_ema.weight": torch.ones(2, 3),
    "ema_updates": torch.tensor(4),
    "optimizer.0.exp_avg": torch.full((2, 3), 0.5),
}


class Malicious:
    def __reduce__(self):
        return os.system, ("touch executed",)


@pytest.fixture
def folder(tmp_path):
    """Of one process that writes as the first of a group."""
    checkpoints = CheckpointFolder(tmp_path, keep=2)
    rest = {"step": 3, "optimizer_groups": [{"lr": 0.1, "params": [0]}]}
    with fake_rank(1):
        checkpoints.save_sharded(TENSORS, rest, is_first=True)
    return checkpoints


def test_what_was_written_is_read_whole(folder):
    content, file, complaints = folder.latest()
    assert file.name == "step_000000003.dcp"
    assert complaints == []
    assert content["step"] == 3
    assert torch.equal(content["params"]["weight"], TENSORS["params.weight"])
    assert torch.equal(content["params_ema"]["weight"], torch.ones(2, 3))
    assert content["ema_updates"] == 4
    assert content["optimizer"]["param_groups"] == [{"lr": 0.1, "params": [0]}]
    assert torch.equal(content["optimizer"]["state"][0]["exp_avg"], torch.full((2, 3), 0.5))


def test_a_part_that_is_missing_is_told(folder):
    [part] = folder.folder.glob("*/*.distcp")
    part.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        folder.latest()


def test_an_index_that_would_run_something_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder.folder / "step_000000003.dcp/.metadata").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(CheckpointError, match="which no checkpoint needs"):
        read_sharded(folder.folder / "step_000000003.dcp")
    assert not (tmp_path / "executed").exists()


def test_older_folders_go_and_an_unfinished_one_is_not_seen(folder):
    (folder.folder / ".step_000000009.dcp.tmp").mkdir()
    with fake_rank(1):
        for step in (4, 5):
            folder.save_sharded(TENSORS, {"step": step, "optimizer_groups": []}, is_first=True)
    assert sorted(path.name for path in folder.folder.glob("step_*")) == [
        "step_000000004.dcp",
        "step_000000005.dcp",
    ]
    assert folder.latest()[0]["step"] == 5
