"""Images in plain files: `.npy` arrays and PNG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swinmr_profiling.training.errors import DataError, first_line
from swinmr_profiling.training.optional_packages import require
from swinmr_profiling.training.volumes import RawSlice


@dataclass(frozen=True)
class NpyVolume:
    """One `.npy` file, (H, W) or (slices, H, W), real or complex. Mapped, not loaded, at every access."""

    name: str
    file: Path
    slices: int
    image_hw: tuple[int, int]
    magnitude_only: bool
    kspace_simulated: bool = True

    @property
    def kspace_hw(self) -> tuple[int, int]:
        """As the image: k-space is simulated."""
        return self.image_hw

    def read(self, index: int) -> RawSlice:
        """The image (H, W): float32, or complex64 where the file is complex."""
        array = _mapped(self.file)
        image = array if array.ndim == 2 else array[index]
        return RawSlice(np.array(image, dtype=np.float32 if self.magnitude_only else np.complex64))


def _mapped(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file}: cannot be read as .npy: {first_line(error)}") from error


def open_npy(file: Path, name: str) -> list[NpyVolume]:
    """The volume of a file. Raises DataError for pickled objects, other shapes, values that are no numbers."""
    array = _mapped(file)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise DataError(f"{file}: has the shape {array.shape}; expected (H, W) or (slices, H, W)")
    if array.dtype.kind not in "iufcb":
        raise DataError(f"{file}: holds {array.dtype}; expected numbers")
    slices = 1 if array.ndim == 2 else array.shape[0]
    return [NpyVolume(name, file, slices, tuple(array.shape[-2:]), array.dtype.kind != "c")]


@dataclass(frozen=True)
class PngVolume:
    """One PNG, 8 or 16 bits; colours become luminance, transparency is dropped."""

    name: str
    file: Path
    image_hw: tuple[int, int]
    slices: int = 1
    kspace_simulated: bool = True
    magnitude_only: bool = True

    @property
    def kspace_hw(self) -> tuple[int, int]:
        """As the image: k-space is simulated."""
        return self.image_hw

    def read(self, index: int) -> RawSlice:
        """The image (H, W), float32, in the file's grey levels."""
        pillow = require("PIL.Image", "PNG data")
        try:
            with pillow.open(self.file) as opened:
                # Pillow calls 16-bit grey "I" or "I;16", and would cut it to 8 bits on the way to "L".
                grey = opened if opened.mode.startswith("I") or opened.mode == "L" else opened.convert("L")
                return RawSlice(np.asarray(grey, dtype=np.float32))
        except (OSError, SyntaxError) as error:
            raise DataError(f"{self.file}: cannot be read as an image: {first_line(error)}") from error


def open_png(file: Path, name: str) -> list[PngVolume]:
    """The volume of a file (each PNG is one). Raises DataError for what is no image."""
    pillow = require("PIL.Image", "PNG data")
    try:
        with pillow.open(file) as opened:
            width, height = opened.size
    except (OSError, SyntaxError) as error:
        raise DataError(f"{file}: cannot be read as an image: {first_line(error)}") from error
    return [PngVolume(name, file, (height, width))]
