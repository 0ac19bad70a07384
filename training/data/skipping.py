"""Training samples that cannot be read, with `data.on_error` "skip": the next slice that can be read stands in.

What stands in depends on the sample's key and the files alone, so a resumed run sees the same batches, and every
batch has its full size in every process.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.utils.data import Dataset, default_collate

from swinmr_profiling.training.data.dataset import ReconstructionDataset, SampleKey
from swinmr_profiling.training.errors import DataError

SKIPPED = "skipped"


class SkippedSample(NamedTuple):
    """A slice that could not be read: its file, its number in it (from 0), and why."""

    file: str
    slice: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, slice {self.slice}: {self.reason}"


class SkippingDataset(Dataset):
    """Samples of a training set; each names, under `skipped`, what it stands in for.

    Its crop, mask and turn are drawn as the skipped slice's would have been. Raises DataError when more than
    `limit` slices in a row cannot be read.
    """

    def __init__(self, dataset: ReconstructionDataset, limit: int) -> None:
        self.dataset, self.limit = dataset, limit

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: SampleKey) -> dict[str, Any]:
        skipped: list[SkippedSample] = []
        for distance in range(min(len(self), self.limit + 1)):
            index = (key.index + distance) % len(self)
            try:
                sample = self.dataset[key._replace(index=index, drawn_as=key.index)]
            except DataError as error:
                skipped.append(self._described(index, str(error)))
            else:
                return {**sample, SKIPPED: skipped}
        raise too_many(skipped, self.limit)

    def _described(self, index: int, message: str) -> SkippedSample:
        file, position = self.dataset.place(index)
        for place in (f"{file}, slice {position}: ", f"{self.dataset.name(index)}: ", f"{file}: "):
            message = message.removeprefix(place)
        return SkippedSample(file, position, message)


def too_many(skipped: list[SkippedSample], limit: int) -> DataError:
    """What ends a run whose data is worse than it was asked to bear."""
    return DataError(
        f"{skipped[-1]}; more than {limit} samples cannot be read (data.max_skipped_samples): repair the data, or "
        "raise the limit"
    )


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch as the default collation makes it, and the skipped samples of all its samples in one list."""
    skipped = [one for sample in samples for one in sample[SKIPPED]]
    plain = [{key: value for key, value in sample.items() if key != SKIPPED} for sample in samples]
    return {**default_collate(plain), SKIPPED: skipped}


class SkippedSamples:
    """What a run has skipped, each slice once. Saved with every checkpoint: the limit is for all of the run."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.samples: dict[tuple[str, int], SkippedSample] = {}

    def unknown(self, found: list[SkippedSample]) -> list[SkippedSample]:
        """Those that are not in the list yet."""
        fresh = {(one.file, one.slice): one for one in found}
        return [one for place, one in fresh.items() if place not in self.samples]

    def add(self, found: list[SkippedSample]) -> list[SkippedSample]:
        """Takes them into the list; returns those that are new.

        Raises DataError above the limit, and takes none: a run that goes on meets the same limit at the same slice.
        """
        fresh = self.unknown(found)
        if len(self.samples) + len(fresh) > self.limit:
            raise too_many(fresh, self.limit)
        self.samples |= {(one.file, one.slice): one for one in fresh}
        return fresh

    def to_json(self) -> list[list[Any]]:
        return [list(one) for one in self.samples.values()]

    def restore(self, content: list[list[Any]]) -> None:
        """Takes what `to_json` gave."""
        self.samples = {(one[0], one[1]): SkippedSample(*one) for one in content}
