"""What every kind of data is read as: volumes of slices."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from swinmr_profiling.models.host_memory import available_bytes
from swinmr_profiling.training.errors import DataError, first_line

# Bytes of one complex64 value, which every slice becomes on its way.
BYTES_PER_VALUE = 8
# And of one slice's place in the order of an epoch.
BYTES_PER_KEY = 150


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


@dataclass(frozen=True)
class Volume:
    """Slices that belong together, such as one scan. Pickles (loader processes get a copy), holds no open file.

    Attributes:
        name: what messages and results call it: the file relative to its folder.
        slices: how many slices it has.
        image_hw: (H, W) of every slice's image.
        kspace_simulated: whether k-space is simulated from images rather than measured.
        magnitude_only: whether the images have no phase (their k-space is then conjugate-symmetric).
        coils: of which k-space was measured, or is simulated.
        has_coil_maps: whether their sensitivities are known.
        axes: the directions in which height and width grow, such as ("R", "A"); None where no file says it.
    """

    name: str
    slices: int
    image_hw: tuple[int, int]
    _: KW_ONLY
    kspace_simulated: bool = True
    magnitude_only: bool = True
    coils: int = 1
    has_coil_maps: bool = True
    axes: tuple[str, str] | None = None

    @property
    def kspace_hw(self) -> tuple[int, int]:
        """(H', W') of the k-space that masks are drawn for: as the image, where it is simulated."""
        return self.image_hw

    def read(self, index: int) -> RawSlice:
        """Slice `index`, 0 to slices - 1. Raises whatever its library raises, which `read_slice` puts into words."""
        raise NotImplementedError


def check_memory(volume: Volume) -> None:
    """Raises DataError for a slice that would not fit into the machine's memory, whatever its file really holds.

    A header of a few bytes can declare any size, and any number of slices.
    """
    height, width = volume.kspace_hw
    one = height * width * volume.coils * BYTES_PER_VALUE
    order = volume.slices * BYTES_PER_KEY
    free = available_bytes()
    if max(one, order) > free:
        what = f"slices of {height} x {width}" if one > order else f"{volume.slices} slices"
        raise DataError(
            f"{getattr(volume, 'file', volume.name)}: declares {what}, which need {max(one, order) / 2**30:.1f} GiB of "
            f"memory, and {free / 2**30:.1f} GiB are free: is the file damaged?"
        )


def read_slice(volume: Volume, index: int) -> RawSlice:
    """Slice `index` of a volume, of the size that the volume was opened with.

    Raises DataError, naming the file and the slice: also for what a library raises that its reader did not expect,
    and for a file that has become another since.
    """
    place = f"{getattr(volume, 'file', volume.name)}, slice {index}"
    try:
        raw = volume.read(index)
    except DataError:
        raise
    except (
        Exception
    ) as error:  # zlib, numpy, HDF5 and decoders of images: each has its own words for a bad file
        raise DataError(f"{place}: cannot be read: {first_line(error)}") from error
    kspace_hw = volume.kspace_hw if raw.kspace is None else raw.kspace.shape[-2:]
    for found, wanted in ((raw.image.shape, volume.image_hw), (kspace_hw, volume.kspace_hw)):
        if found != wanted:
            raise DataError(
                f"{place}: has the shape {tuple(found)}, which is not what its header said at the start"
            )
    return raw
