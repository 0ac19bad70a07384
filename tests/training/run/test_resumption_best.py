"""The best checkpoint, the data and earlier runs: what an edited or restarted training keeps of them."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.run.checkpoints import CheckpointError, CheckpointFolder, read_checkpoint
from swinmr_profiling.training.run.resumption import compare_with_checkpoint
from tests.training.conftest import TINY_RUN, merged
from tests.training.run.resumed_runs import StopBefore, edited_lines

# What is edited, and whether the best so far can still be compared by PSNR and by the loss.
BEST = {
    "rate": ({"training.optimizer.lr": 1e-4}, True, True),
    "loss": ({"training.loss.components.spatial": {"weight": 1.0}}, True, False),
    "mask": ({"data.degradation": {"mask": "radial"}}, False, False),
    "scaling": ({"data.normalisation": "max"}, False, False),
    "slices": ({"data.phantom.coils": 2}, False, False),
    "convention": ({"evaluation.convention": "slice"}, False, False),
    "sampling": ({"evaluation.sampling": {"sampling_steps": 3}}, True, True),  # of denoisers alone
    "batches": ({"training.validate_every_steps": 2}, True, True),
}


@pytest.mark.parametrize("edit", BEST)
@pytest.mark.parametrize("metric", ["val_psnr", "val_loss"])
def test_the_best_is_compared_with_what_was_measured_likewise(edit, metric):
    changes, by_psnr, by_loss = BEST[edit]
    chosen = {"training.early_stopping": {"metric": metric}}
    was = config_from_dict(merged(TINY_RUN, chosen)).model_dump(mode="json")
    now = config_from_dict(merged(TINY_RUN, {**chosen, **changes}))
    comparable = compare_with_checkpoint(now, {"config": was}, "file").best_is_comparable
    assert comparable is (by_psnr if metric == "val_psnr" else by_loss)


@pytest.mark.parametrize(("metric", "comparable"), [("auto", True), ("val_psnr", True), ("val_ssim", False)])
def test_the_best_by_another_metric_is_not_compared(metric, comparable):
    was = config_from_dict(TINY_RUN).model_dump(mode="json")
    now = config_from_dict(merged(TINY_RUN, {"training.early_stopping": {"metric": metric}}))
    assert compare_with_checkpoint(now, {"config": was}, "file").best_is_comparable is comparable


def test_a_best_that_is_chosen_anew_leaves_the_old_one_beside_it(stopped, go_on, tmp_path):
    """A PSNR in dB is never beaten by an SSIM: without a new choice nothing would ever be the best again."""
    stopped()
    folder = tmp_path / "results/tiny/checkpoints"
    old = (folder / "best.pth").read_bytes()
    run = go_on({"training.early_stopping": {"metric": "val_ssim"}})
    assert any("the best is chosen anew" in line for line in run.messages)
    run.run()
    assert run.progress.best_step == 6
    assert run.progress.best < 1  # an SSIM
    assert read_checkpoint(folder / "best.pth")["step"] == 6
    assert (folder / "best_before_step_000000006.pth").read_bytes() == old
    # Gone on with in the same way, what is there is the best to beat.
    run = go_on({"training.early_stopping": {"metric": "val_ssim"}, "training.total_steps": 9})
    assert run.progress.best_step == 6


def save_volumes(folder, **slices):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, count in slices.items():
        np.save(folder / f"{name}.npy", rng.random((count, 32, 32), np.float32))


def test_other_files_in_the_same_folder_are_told(stopped, go_on, tmp_path):
    data = {
        "data.source": "npy",
        "data.train_dir": str(tmp_path / "train"),
        "data.val_dir": str(tmp_path / "val"),
    }
    save_volumes(tmp_path / "train", a=6, b=4)
    save_volumes(tmp_path / "val", c=2)
    stopped(data)
    run = go_on(data)
    assert not any("data: 1" in line or "anew" in line for line in run.messages)
    save_volumes(tmp_path / "train", d=2)
    run = go_on(data)
    assert "other train data: 10 slices then, 12 now" in run.messages
    assert edited_lines(run) == []
    assert run.progress.best is not None
    # Four steps of one batch each, in epochs of six batches: batch 4 of the first epoch comes next.
    next(run._stream())
    assert (run.train_loader.batch_sampler.epoch, run.train_loader.batch_sampler.first_batch) == (0, 4)
    save_volumes(tmp_path / "val", e=1)
    run = go_on(data)
    assert "other val data: 2 slices then, 3 now" in run.messages
    assert any("the best is chosen anew" in line for line in run.messages)
    assert run.progress.best is None


def test_a_run_that_starts_anew_keeps_the_earlier_checkpoints_and_its_own(tiny_run, tmp_path):
    """Its steps are lower: they were taken for old ones and removed, and the next run went on from the old run's."""
    tiny_run({"training.total_steps": 9, "training.checkpoint_every_steps": 3}).run()
    folder = tmp_path / "results/tiny/checkpoints"
    earlier = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert sorted(earlier) == ["best.pth", "last.pth", "step_000000006.pth", "step_000000009.pth"]
    run = tiny_run({"system.seed": 7}, stop=StopBefore(2))
    run.start_anew()
    assert any("started anew" in line for line in run.messages)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == earlier  # nothing is there yet
    result = run.run()
    assert {file.name: file.read_bytes() for file in (folder / "before_restart_1").iterdir()} == earlier
    assert sorted(file.name for file in folder.iterdir()) == [
        "before_restart_1",
        "last.pth",
        "step_000000001.pth",
    ]
    again = tiny_run({"system.seed": 7})
    assert again.resume()
    assert again.state.step == result.step == 1
    again.run()
    assert (folder / "step_000000001.pth").exists()
    run = tiny_run({"system.seed": 8}, stop=StopBefore(4))
    run.start_anew()
    run.run()
    assert (folder / "before_restart_2" / "step_000000006.pth").exists()
    assert read_checkpoint(folder / "best.pth")["step"] == 3


def test_a_first_run_has_nothing_to_move(tiny_run, tmp_path):
    run = tiny_run({"training.total_steps": 1})
    run.start_anew()
    assert not any("started anew" in line for line in run.messages)
    run.run()
    assert not (tmp_path / "results/tiny/checkpoints/before_restart_1").exists()


def test_a_disk_that_refuses_leaves_the_earlier_checkpoints_where_they_are(tiny_run, tmp_path, monkeypatch):
    tiny_run({"training.total_steps": 3}).run()
    folder = tmp_path / "results/tiny/checkpoints"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = CheckpointFolder(folder, 2)
    for name, module, save in (
        ("copyfile", shutil, lambda: kept.save_best({"step": 9}, is_first=True)),
        ("mkdir", Path, kept.set_aside),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(CheckpointError, match="No space left on device"):
                save()
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="the old one stays"):
            kept.save_best({"step": 9}, is_first=True)
    assert (folder / "best.pth").read_bytes() == before["best.pth"]
