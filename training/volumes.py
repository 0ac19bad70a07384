"""What every kind of data is read as: volumes of slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class RawSlice:
    """One slice as it is in a file, before any scaling.

    Attributes:
        image: (H, W), float32 magnitude or complex64: the reconstruction target.
        kspace: (coils, H', W') complex64, centred; H' x W' may be larger than H x W, which is then the centre
            of the reconstruction. None where only the image is known and k-space has to be simulated.
        coil_maps: (coils, H, W) complex64 sensitivities to simulate k-space with. None: one uniform coil.
    """

    image: np.ndarray
    kspace: np.ndarray | None = None
    coil_maps: np.ndarray | None = None


class Volume(Protocol):
    """Slices that belong together, such as one scan. Pickles (loader processes get a copy), holds no open file.

    Attributes:
        name: what messages and results call it: the file relative to its folder.
        slices: how many slices it has.
        image_hw: (H, W) of every slice's image.
        kspace_hw: (H', W') of the k-space that masks are drawn for.
        kspace_simulated: whether k-space is simulated from images rather than measured.
        magnitude_only: whether the images have no phase (their k-space is then conjugate-symmetric).
    """

    name: str
    slices: int
    image_hw: tuple[int, int]
    kspace_hw: tuple[int, int]
    kspace_simulated: bool
    magnitude_only: bool

    def read(self, index: int) -> RawSlice:
        """Slice `index`, 0 to slices - 1. Raises DataError (naming the file) for what cannot be read."""
        ...
