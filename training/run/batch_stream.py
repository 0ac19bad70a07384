"""Micro-batches for ever, from any step of a run on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader

from swinmr_profiling.training.denoising.denoising_step import Preparation
from swinmr_profiling.training.step.training_step import MicroBatch


class BatchStream:
    """The micro-batches a run sees, epoch after epoch, starting where a step number says.

    The position is nothing but that number: step s starts with micro-batch s x accumulate, so a resumed run
    needs no other bookkeeping. `waited_s` adds up the seconds that steps waited for their data.
    """

    def __init__(
        self, loader: DataLoader, device: torch.device, step: int, accumulate: int, prepare: Preparation
    ) -> None:
        """loader: of a training split, whose batch_sampler can seek. prepare: makes its batches a step's."""
        self.waited_s = 0.0
        self._batches = self._generate(loader, device, step * accumulate, prepare)

    @staticmethod
    def _generate(
        loader: DataLoader, device: torch.device, consumed: int, prepare: Preparation
    ) -> Iterator[MicroBatch]:
        sampler = loader.batch_sampler
        epoch, batch = divmod(consumed, sampler.batches_per_epoch)
        while True:
            sampler.seek(epoch, batch)
            for number, raw in enumerate(loader, start=batch):
                yield prepare(raw, device, epoch, number)
            epoch, batch = epoch + 1, 0

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> MicroBatch:
        started = time.perf_counter()
        batch = next(self._batches)
        self.waited_s += time.perf_counter() - started
        return batch

    def close(self) -> None:
        """Lets the loader's processes go."""
        self._batches.close()
