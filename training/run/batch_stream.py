"""Micro-batches for ever, from any step of a run on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from typing import Any, cast

import torch
from torch.utils.data import DataLoader

from swinmr_profiling.training.data.loader import TrainingBatches
from swinmr_profiling.training.data.skipping import SKIPPED, SkippedSample
from swinmr_profiling.training.denoising.denoising_step import Preparation
from swinmr_profiling.training.errors import DataError, first_line
from swinmr_profiling.training.step.training_step import MicroBatch

# How torch begins its word about a loader process that was killed; it raises a bare RuntimeError.
LOADER_DIED = "DataLoader worker (pid"


class BatchStream:
    """The micro-batches a run sees, epoch after epoch, starting where a step number says.

    The position is nothing but that number: step s starts with micro-batch s x accumulation, so a resumed run
    needs no other bookkeeping. `waited_s` adds up the seconds that steps waited for their data.
    """

    def __init__(
        self, loader: DataLoader, device: torch.device, step: int, accumulation: int, prepare: Preparation
    ) -> None:
        """loader: of a training split, whose batch_sampler can seek. prepare: makes its batches a step's."""
        self.waited_s = 0.0
        # Of the step under way: what its samples are called.
        self.names: list[str] = []
        self._device, self._accumulation, self._prepare = device, accumulation, prepare
        self._raw = self._generate(loader, step * accumulation)
        self._drawn: deque[tuple[dict[str, Any], int, int]] = deque()

    @staticmethod
    def _generate(loader: DataLoader, consumed: int) -> Generator[tuple[dict[str, Any], int, int]]:
        sampler = cast("TrainingBatches", loader.batch_sampler)
        epoch, batch = divmod(consumed, sampler.batches_per_epoch)
        while True:
            sampler.seek(epoch, batch)
            for number, raw in enumerate(loader, start=batch):
                yield raw, epoch, number
            epoch, batch = epoch + 1, 0

    def draw(self) -> list[SkippedSample]:
        """Reads the batches of the next step into the host's memory; returns what was skipped on the way.

        So data that cannot be read is found before a step begins. Raises DataError.
        """
        started = time.perf_counter()
        self._drawn.clear()
        skipped: list[SkippedSample] = []
        try:
            for _ in range(self._accumulation):
                raw, epoch, number = next(self._raw)
                skipped += raw.pop(SKIPPED, ())
                self._drawn.append((raw, epoch, number))
        except (RuntimeError, ConnectionError, EOFError) as error:
            # The others: it died while it handed a batch over.
            if isinstance(error, RuntimeError) and not str(error).startswith(LOADER_DIED):
                raise
            raise DataError(
                f"a loader process ended: {first_line(error)}; fewer data.num_workers need less memory"
            ) from error
        self.names = [str(name) for raw, _, _ in self._drawn for name in raw["name"]]
        self.waited_s += time.perf_counter() - started
        return skipped

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> MicroBatch:
        if not self._drawn:
            self.draw()
        started = time.perf_counter()
        batch = self._prepare(self._drawn[0][0], self._device, *self._drawn[0][1:])
        self._drawn.popleft()
        self.waited_s += time.perf_counter() - started
        return batch

    def close(self) -> None:
        """Lets the loader's processes go."""
        self._raw.close()
