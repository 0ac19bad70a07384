"""Loaders: batches in an order that depends on the seed, the epoch and the position alone."""

from __future__ import annotations

import multiprocessing.util
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.machine_failures import leave_descriptors_to_the_end
from swinmr_profiling.stop_signals import STOP_SIGNALS
from swinmr_profiling.training.data.dataset import ReconstructionDataset, SampleKey, build_dataset
from swinmr_profiling.training.data.skipping import SkippingDataset, collate
from swinmr_profiling.training.data.sources import Split
from swinmr_profiling.training.errors import DataError

ORDER_STREAM = 4


class TrainingBatches(Sampler[list[SampleKey]]):
    """One epoch of shuffled batches of this rank, from any position on.

    Global batch b of an epoch is the b-th piece of one permutation, and rank r takes the r-th piece of that: so
    `world_size` processes see together what one process with a `world_size` times larger batch sees. Samples
    that fill no global batch are left to other epochs; data smaller than one global batch is repeated (with
    other masks and crops).

    The position is what the loop has consumed. It is not kept here, because workers load ahead: on resumption
    the loop calls `seek` with its own counts, then iterates.
    """

    def __init__(self, samples: int, batch_size: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        """batch_size is per rank. Raises ValueError for sizes below 1 or a rank outside the world."""
        if samples < 1 or batch_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"{samples} samples, batches of {batch_size}, rank {rank} of {world_size}")
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = self.first_batch = 0

    @property
    def batches_per_epoch(self) -> int:
        """Batches of a whole epoch, wherever this one starts."""
        return max(1, self.samples // (self.batch_size * self.world_size))

    def seek(self, epoch: int, batch: int = 0) -> None:
        """The next iteration yields batch number `batch` of `epoch` first. Raises ValueError past the end."""
        if epoch < 0 or not 0 <= batch <= self.batches_per_epoch:
            raise ValueError(f"epoch {epoch}, batch {batch}: an epoch has {self.batches_per_epoch} batches")
        self.epoch, self.first_batch = epoch, batch

    def __len__(self) -> int:
        return self.batches_per_epoch - self.first_batch

    def __iter__(self) -> Iterator[list[SampleKey]]:
        global_batch = self.batch_size * self.world_size
        keys: list[SampleKey] = []
        repeat = 0
        while len(keys) < max(global_batch, self.samples):
            rng = np.random.default_rng([ORDER_STREAM, self.seed, self.epoch, repeat])
            keys += [SampleKey(self.epoch, int(i), repeat) for i in rng.permutation(self.samples)]
            repeat += 1
        for batch in range(self.first_batch, self.batches_per_epoch):
            first = batch * global_batch + self.rank * self.batch_size
            yield keys[first : first + self.batch_size]


class EvaluationBatches(Sampler[list[SampleKey]]):
    """All slices once, in order; whole volumes are dealt to ranks in turn, so that metrics of volumes are local."""

    def __init__(
        self, dataset: ReconstructionDataset, batch_size: int, rank: int = 0, world_size: int = 1
    ) -> None:
        """batch_size is per rank; the last batch may be smaller, and a rank may have none."""
        self.batch_size = batch_size
        self.indices = [i for i in range(len(dataset)) if dataset.locate(i)[0] % world_size == rank]

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        for first in range(0, len(self.indices), self.batch_size):
            yield [SampleKey(0, i) for i in self.indices[first : first + self.batch_size]]


class BatchLoader(DataLoader):
    """A DataLoader whose killed processes are told of where a batch is waited for, and nowhere else.

    torch also raises from a handler of SIGCHLD, wherever the main process is just then: amid a step, a save, or code
    whose exceptions Python prints and drops.
    """

    def __iter__(self) -> Any:
        number = getattr(signal, "SIGCHLD", None)  # not on Windows
        if number is None or threading.current_thread() is not threading.main_thread():
            return super().__iter__()
        handler = signal.getsignal(number)
        try:
            return super().__iter__()
        finally:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def build_loader(
    config: ExperimentConfig,
    split: Split,
    *,
    batch_size: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    dataset: ReconstructionDataset | None = None,
) -> BatchLoader:
    """The loader of a split. Its `batch_sampler` is TrainingBatches ("train") or EvaluationBatches.

    Batches are dicts as Sample describes. With equal seeds the batches are equal, whatever `num_workers` is.
    Torch's global random state is left alone.

    Args:
        config: the experiment.
        split: "train", "val" or "test".
        batch_size: per rank. None: the config's `batch_size` ("train") or `val_batch_size`.
        rank, world_size: this process among those that share the data.
        dataset: one built before. None: it is built.

    Raises:
        DataError: for data that cannot be used, such as slices of several sizes in batches of more than one.
            With data.on_error "skip" a training slice that cannot be read is none of it (`training.data.skipping`).
        ValueError: for a batch size of "auto" that nobody has resolved.
    """
    dataset = build_dataset(config, split) if dataset is None else dataset
    data = config.data
    if batch_size is None:
        own = data.batch_size if split == "train" else data.val_batch_size
        if own == "auto":
            raise ValueError('data.batch_size is "auto": pass the batch size that the profile recommends')
        batch_size = own
    _refuse_mixed_sizes(dataset, batch_size, split)
    batches: Sampler[list[SampleKey]] = (
        TrainingBatches(len(dataset), batch_size, config.system.seed, rank, world_size)
        if split == "train"
        else EvaluationBatches(dataset, batch_size, rank, world_size)
    )
    workers = data.num_workers
    skips = split == "train" and data.on_error == "skip"
    return BatchLoader(
        SkippingDataset(dataset, data.max_skipped_samples) if skips else dataset,
        collate_fn=collate if skips else None,
        batch_sampler=batches,
        num_workers=workers,
        prefetch_factor=data.prefetch_factor if workers else None,
        persistent_workers=workers > 0 and split == "train",
        worker_init_fn=begin_loader_process,
        pin_memory=data.pin_memory and torch.cuda.is_available(),
        # Without a generator of its own, every new iterator draws a number from the global one, and a resumed
        # run would then see other dropout than an uninterrupted one.
        generator=torch.Generator().manual_seed(config.system.seed),
    )


def begin_loader_process(worker: int) -> None:
    """What a loader process does first."""
    # Before what others do when it ends: multiprocessing removes a folder then.
    multiprocessing.util.Finalize(None, leave_descriptors_to_the_end, exitpriority=100)
    _leave_signals_to_the_main_process()


def _leave_signals_to_the_main_process() -> None:
    """A stop signal reaches all processes of a run, but the main one decides when to end.

    A loader that died of it would take the step under way with it, before it is saved. All but SIGTERM are
    ignored. SIGTERM is how the main process itself ends loaders that are left when it exits, and it waits for
    them: so SIGTERM counts when it comes from there, and not from torchrun or a batch system.
    """
    for number in STOP_SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    # macOS does not say who sent a signal: there SIGTERM keeps its meaning.
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_on_the_parents_word, daemon=True).start()


def _end_on_the_parents_word() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def _refuse_mixed_sizes(dataset: ReconstructionDataset, batch_size: int, split: Split) -> None:
    sizes = dataset.image_sizes
    if batch_size == 1 or len(sizes) == 1:
        return
    named = [
        f"{volume.name} is {volume.image_hw[0]} x {volume.image_hw[1]}"
        for volume in (next(v for v in dataset.volumes if v.image_hw == size) for size in sizes[:2])
    ]
    advice = "set data.patch_size" if split == "train" else "set data.val_batch_size to 1"
    raise DataError(
        f"slices of {len(sizes)} sizes do not stack into batches of {batch_size}: {', '.join(named)}; {advice}"
    )
