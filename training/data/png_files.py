"""Images in plain files: PNG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swinmr_profiling.training.errors import DataError, first_line
from swinmr_profiling.training.optional_packages import require
from swinmr_profiling.training.volumes import RawSlice, Volume


@dataclass(frozen=True)
class PngVolume(Volume):
    """One PNG, 8 or 16 bits; colours become luminance, transparency is dropped."""

    file: Path

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
    """The volume of a file (each PNG is one). Raises DataError for what is not an image."""
    pillow = require("PIL.Image", "PNG data")
    try:
        with pillow.open(file) as opened:
            width, height = opened.size
    except (OSError, SyntaxError) as error:
        raise DataError(f"{file}: cannot be read as an image: {first_line(error)}") from error
    return [PngVolume(name, 1, (height, width), file)]
