"""Real MRI that is installed with Python packages: nothing to download, nothing committed.

nibabel's `example4d.nii.gz`: a whole head, echo-planar, 128 x 96 pixels, 24 positions at 2 times. matplotlib's
`s1045.ima.gz`: one sagittal T1 slice, 256 x 256. Both are magnitude, so k-space is simulated.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from swinmr_profiling.training.data.scanner_files import directions_of
from swinmr_profiling.training.errors import DataError, first_line, require
from swinmr_profiling.training.volumes import RawSlice, Volume

HEAD_NAME, T1_NAME = "nibabel example4d", "matplotlib s1045"
HEAD_HW, T1_HW = (128, 96), (256, 256)
# The two times show the same head (the same position correlates at 0.999), neighbouring positions at 0.95 to 0.98:
# the sets are split by position, both times together, and one position between two sets is left out.
HEAD_POSITIONS = {"train": range(15), "val": range(16, 19), "test": range(20, 24)}
HEAD_TIMES = 2


def _head_file() -> tuple[Any, Path]:
    """The image, its voxels unread, and where it lies."""
    nibabel = require("nibabel", "the packaged data")
    file = Path(str(nibabel.__file__)).parent / "tests" / "data" / "example4d.nii.gz"
    try:
        return nibabel.load(file), file
    except OSError as error:
        raise DataError(f"{file}: this nibabel comes without its example: {first_line(error)}") from error


@lru_cache(maxsize=1)
def _head() -> np.ndarray:
    image, file = _head_file()
    try:
        return np.asarray(image.dataobj, dtype=np.float32)
    except OSError as error:
        raise DataError(f"{file}: this nibabel comes without its example: {first_line(error)}") from error


@lru_cache(maxsize=1)
def _t1() -> np.ndarray:
    file = Path(require("matplotlib", "the packaged data").get_data_path()) / "sample_data" / "s1045.ima.gz"
    try:
        with gzip.open(file) as opened:
            # Big-endian, without a header: read the other way round, values come out 256 times too large.
            return np.frombuffer(opened.read(), dtype=">u2").reshape(T1_HW).astype(np.float32)
    except OSError as error:
        raise DataError(f"{file}: this matplotlib comes without its example: {first_line(error)}") from error


@dataclass(frozen=True)
class HeadVolume(Volume):
    """The positions of one set at one time of nibabel's head."""

    positions: range
    time: int

    def read(self, index: int) -> RawSlice:
        """Magnitude (128, 96), float32."""
        return RawSlice(_head()[:, :, self.positions[index], self.time])


class T1Volume(Volume):
    """matplotlib's slice, of another head: training only."""

    def read(self, index: int) -> RawSlice:
        """Magnitude (256, 256), float32."""
        return RawSlice(_t1())


def open_packaged(split: str) -> list[Volume]:
    """The volumes of "train", "val" or "test". Raises DataError when nibabel or matplotlib is missing."""
    _head()
    positions, axes = HEAD_POSITIONS[split], directions_of(_head_file()[0])
    # With the time and the first position, so that no two sets share a name.
    volumes: list[Volume] = [
        HeadVolume(
            f"{HEAD_NAME}, time {time}, positions {positions[0]} to {positions[-1]}",
            len(positions),
            HEAD_HW,
            positions,
            time,
            axes=axes,
        )
        for time in range(HEAD_TIMES)
    ]
    if split == "train":
        _t1()
        volumes.append(T1Volume(T1_NAME, 1, T1_HW))
    return volumes
