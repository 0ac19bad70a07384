"""Batches: their order, resumption, ranks, workers, and what does not stack."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.dataset import SampleKey, build_dataset
from swinmr_profiling.training.data.loader import EvaluationBatches, TrainingBatches, build_loader
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.run.batch_stream import LOADER_DIED

REPOSITORY = Path(__file__).resolve().parents[3]


def config(folder=None, **data):
    data = {"num_workers": 0, "batch_size": 2, "phantom": {"slices": 7, "val_slices": 3}, **data}
    if folder is not None:
        data.update(train_dir=str(folder), val_dir=str(folder))
    return config_from_dict({"model": {"net_type": "swinir", "img_size": 16}, "data": data})


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="no such signal")
def test_a_killed_loader_process_is_told_of_where_a_batch_is_waited_for(monkeypatch):
    """torch also raised from a signal handler: amid a save, or in code whose exceptions Python prints and drops."""
    monkeypatch.setattr("torch.utils.data._utils.signal_handling._SIGCHLD_handler_set", False)
    told = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: told.append(number))
    try:
        batches = iter(build_loader(config(num_workers=1), "train"))
        next(batches)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGKILL)
        while not told:  # the handler that was there; torch's raises here
            time.sleep(0.01)
        with pytest.raises(RuntimeError, match=rf"^{re.escape(LOADER_DIED)}.*exited unexpectedly"):
            list(batches)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_epoch_is_a_permutation_and_the_next_another():
    batches = TrainingBatches(10, 3, seed=0)
    first = [key for batch in batches for key in batch]
    assert len(batches) == batches.batches_per_epoch == 3  # the tenth sample fills no batch
    assert len({key.index for key in first}) == 9
    assert {key.epoch for key in first} == {0}
    assert first == [key for batch in TrainingBatches(10, 3, seed=0) for key in batch]
    batches.seek(1)
    second = [key for batch in batches for key in batch]
    assert [key.index for key in second] != [key.index for key in first]
    assert {key.epoch for key in second} == {1}
    other = [key.index for batch in TrainingBatches(10, 3, seed=1) for key in batch]
    assert other != [key.index for key in first]


def test_seeking_continues_where_an_uninterrupted_epoch_would():
    whole = TrainingBatches(20, 3, seed=5)
    whole.seek(4)
    rest = TrainingBatches(20, 3, seed=5)
    rest.seek(4, 2)
    assert list(rest) == list(whole)[2:]
    assert (len(rest), rest.batches_per_epoch) == (4, 6)
    rest.seek(4, 6)
    assert list(rest) == []
    with pytest.raises(ValueError, match="batch 7: an epoch has 6 batches"):
        rest.seek(4, 7)


@pytest.mark.parametrize("samples", [24, 29, 5])
def test_ranks_see_together_what_one_process_sees(samples):
    """Batch by batch, also where the data is smaller than a global batch."""
    alone = list(TrainingBatches(samples, 6, seed=1))
    ranks = [list(TrainingBatches(samples, 2, seed=1, rank=rank, world_size=3)) for rank in range(3)]
    assert [[key for piece in pieces for key in piece] for pieces in zip(*ranks, strict=True)] == alone


def test_few_samples_are_repeated_as_different_samples():
    (batch,) = TrainingBatches(3, 8, seed=0)
    assert len(batch) == len(set(batch)) == 8
    counts = np.bincount([key.index for key in batch])
    assert sorted(counts) == [2, 3, 3]
    assert all(key == SampleKey(0, key.index, key.repeat) for key in batch)


def test_evaluation_takes_every_slice_once_and_deals_whole_volumes(tmp_path):
    for name, slices in (("a.npy", 2), ("b.npy", 3), ("c.npy", 1)):
        np.save(tmp_path / name, np.random.default_rng(0).random((slices, 16, 16)))
    dataset = build_dataset(config(tmp_path), "val")
    assert [key.index for batch in EvaluationBatches(dataset, 4) for key in batch] == list(range(6))
    ranks = [EvaluationBatches(dataset, 2, rank, 2) for rank in range(2)]
    assert [[key.index for batch in rank for key in batch] for rank in ranks] == [[0, 1, 5], [2, 3, 4]]
    assert [len(rank) for rank in ranks] == [2, 2]
    third = EvaluationBatches(dataset, 2, 3, 4)
    assert (len(third), list(third)) == (0, [])


def batches_of(loader, epochs=1):
    seen = []
    for epoch in range(epochs):
        loader.batch_sampler.seek(epoch)
        seen += list(loader)
    return seen


def test_workers_change_nothing_and_epochs_everything():
    """Each epoch new masks, also from workers that live on; the classic is equal masks in all of them."""
    alone = batches_of(build_loader(config(), "train"), epochs=2)
    shared = batches_of(build_loader(config(num_workers=2), "train"), epochs=2)
    assert len(alone) == len(shared) == 6
    for one, other in zip(alone, shared, strict=True):
        assert one["name"] == other["name"]
        assert torch.equal(one["input"], other["input"])
        assert torch.equal(one["target"], other["target"])
    inputs = {tuple(x.flatten().tolist()) for batch in alone for x in batch["input"]}
    # Of twelve; of so few lines two epochs may draw the same. Equal masks in all epochs would make six.
    assert len(inputs) >= 11


def test_what_a_batch_holds():
    batch = next(iter(build_loader(config(), "train")))
    assert batch["input"].shape == batch["target"].shape == (2, 1, 16, 16)
    assert batch["input"].dtype == torch.float32
    assert batch["sampled_fraction"].shape == batch["scale"].shape == (2,)
    assert [name.startswith("phantom, train, slice") for name in batch["name"]] == [True, True]


@pytest.fixture
def two_threads():
    """torch with two threads, whatever the test process was given."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_torchs_random_state_and_threads_are_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for split in ("train", "val"):
        list(build_loader(config(), split))
        list(build_loader(config(num_workers=1), split))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 2


def test_a_bad_slice_in_a_worker_is_still_one_line(tmp_path):
    np.save(tmp_path / "a.npy", np.full((4, 16, 16), np.nan))
    loader = build_loader(config(tmp_path, num_workers=1), "train")
    with pytest.raises(DataError) as caught:
        next(iter(loader))
    assert str(caught.value).startswith("a.npy, slice ")
    assert "\n" not in str(caught.value)


LOADING = """
import os, signal, subprocess, sys, time
from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.loader import build_loader

data = {"num_workers": 2, "batch_size": 1, "phantom": {"slices": 50}}
config = config_from_dict({"model": {"net_type": "swinir", "img_size": 16}, "data": data})
batches = iter(build_loader(config, "train"))
next(batches), next(batches)  # one of each process
"""


def run(code):
    """Runs code after two loader processes have started, in a process of its own that must end."""
    command = [sys.executable, "-c", LOADING + code]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_a_process_that_fails_while_loaders_live_still_ends():
    """The iterator is held by the traceback: at exit its processes are told to end, and waited for."""
    ended = run("raise SystemExit('failed')")
    assert (ended.returncode, ended.stderr) == (1, "failed\n")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="this system does not say who sent a signal")
def test_stop_signals_to_everyone_leave_the_loaders_at_work():
    """As torchrun and batch systems send them: from another process, to each process of the run."""
    code = """
loaders = [str(worker.pid) for worker in batches._workers]
for name in ("INT", "TERM", "HUP"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
    subprocess.run(["kill", "-" + name, *loaders, str(os.getpid())], check=True)
time.sleep(0.5)
print(sum(1 for batch in batches), all(worker.is_alive() for worker in batches._workers))
"""
    assert run(code).stdout == "48 True\n"


@pytest.mark.slow
def test_mixed_sizes_are_refused_only_where_they_would_be_stacked(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((16, 16)))
    np.save(tmp_path / "b.npy", np.random.default_rng(0).random((16, 24)))
    with pytest.raises(
        DataError, match=r"2 sizes .* of 2: a\.npy is 16 x 16, b\.npy is 16 x 24; set data\.patch_size"
    ):
        build_loader(config(tmp_path), "train")
    assert len(list(build_loader(config(tmp_path, batch_size=1), "train"))) == 2
    assert len(list(build_loader(config(tmp_path, patch_size=16), "train"))) == 1
    assert len(list(build_loader(config(tmp_path), "val"))) == 2
    with pytest.raises(DataError, match=r"set data\.val_batch_size to 1"):
        build_loader(config(tmp_path, val_batch_size=2), "val")


def test_an_automatic_batch_size_must_be_resolved_by_the_caller():
    with pytest.raises(ValueError, match=r'data\.batch_size is "auto"'):
        build_loader(config(batch_size="auto"), "train")
    assert len(build_loader(config(batch_size="auto"), "train", batch_size=3)) == 2


def test_impossible_samplers_are_refused():
    for arguments in ((0, 1, 0), (4, 0, 0), (4, 1, 0, 2, 2)):
        with pytest.raises(ValueError, match="samples, batches of"):
            TrainingBatches(*arguments)
