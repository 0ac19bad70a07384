"""`.npy` arrays: images or k-space, in the layout that is declared (`data.layout`) or that alone makes sense."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swinmr_profiling.training.data.fastmri_files import reconstruct
from swinmr_profiling.training.errors import DataError, first_line
from swinmr_profiling.training.volumes import RawSlice, Volume

# Share of a complex array's energy in the central (or, uncentred, the corner) eighth of each axis: of k-space nearly
# all, of an image of any head little. 1 / 64 is what an even one has there.
KSPACE_SHARE, IMAGE_SHARE = 0.5, 0.25
COLOURS = (3, 4)


@dataclass(frozen=True)
class NpyVolume(Volume):
    """One `.npy` file. Mapped, not loaded, at every access. layout: one of `data.layout`, but not "auto"."""

    file: Path
    layout: str = "slices_first"

    def read(self, index: int) -> RawSlice:
        """The image (H, W): float32, or complex64 where the file is complex; of k-space that and its magnitude."""
        array = _mapped(self.file)
        values = (
            array if array.ndim == 2 else array[..., index] if self.layout == "slices_last" else array[index]
        )
        if self.kspace_simulated:
            return RawSlice(np.array(values, dtype=np.float32 if self.magnitude_only else np.complex64))
        kspace = np.array(values, dtype=np.complex64).reshape(-1, *self.image_hw)
        return RawSlice(reconstruct(kspace), kspace)


def _mapped(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file}: cannot be read as .npy: {first_line(error)}") from error


def open_npy(file: Path, name: str, layout: str = "auto") -> list[NpyVolume]:
    """The volume of a file.

    Raises DataError for pickled objects, values that are not numbers, shapes that the layout does not have, and, with
    "auto", for what can be read in two ways.
    """
    array = _mapped(file)
    if array.dtype.kind not in "iufcb":
        raise DataError(f"{file}: holds {array.dtype}; expected numbers")
    axes = (4,) if layout == "coil_kspace" else (2, 3)
    if array.ndim not in axes or 0 in array.shape:
        expected = "(slices, coils, H, W)" if layout == "coil_kspace" else "(H, W) or (slices, H, W)"
        hint = '; measured k-space of coils: data.layout "coil_kspace"' if array.ndim == 4 else ""
        raise DataError(f"{file}: has the shape {array.shape}; expected {expected}{hint}")
    is_complex = array.dtype.kind == "c"
    if layout.endswith("kspace") and not is_complex:
        raise DataError(f'{file}: holds {array.dtype}, and k-space (data.layout "{layout}") is complex')
    if layout == "auto":
        layout = _only_reading(array, file)
        if is_complex:
            _refuse_kspace(array, layout, file)
    last = layout == "slices_last" and array.ndim == 3
    slices = 1 if array.ndim == 2 else array.shape[-1 if last else 0]
    height, width = array.shape[:2] if last else array.shape[-2:]
    return [
        NpyVolume(
            name,
            slices,
            (int(height), int(width)),
            file,
            layout,
            kspace_simulated=not layout.endswith("kspace"),
            magnitude_only=not is_complex,
            coils=array.shape[1] if layout == "coil_kspace" else 1,
            has_coil_maps=False,
        )
    ]


def _only_reading(array: np.ndarray, file: Path) -> str:
    """ "slices_first" or "slices_last", whichever is the only sensible one."""
    if array.ndim == 2:
        return "slices_first"
    first, middle, last = array.shape
    if 1 in (first, last) and first != last:
        return "slices_last" if last == 1 else "slices_first"
    is_square = {"slices_first": middle == last, "slices_last": first == middle}
    colours = array.dtype == np.uint8 and last in COLOURS
    # Two planes with values below 0, which no magnitude has.
    parts = array.dtype.kind == "f" and 2 in (first, last) and float(array.min()) < 0
    if sum(is_square.values()) == 1 and not colours and not parts:
        return next(layout for layout, holds in is_square.items() if holds)
    what = "colours, or " if colours else ""
    if parts:
        what = "real and imaginary part (save them as one complex array), or "
    raise DataError(
        f"{file}: has the shape {array.shape}: {what}(slices, H, W) = {first} slices of {middle} x {last}, or "
        f'(H, W, slices) = {last} slices of {first} x {middle}? Set data.layout to "slices_first" or '
        '"slices_last"'
    )


def _refuse_kspace(array: np.ndarray, layout: str, file: Path) -> None:
    """Complex values may be images or k-space: told apart by where the energy of the middle slice lies."""
    if array.ndim == 3:
        image = array[..., array.shape[-1] // 2] if layout == "slices_last" else array[array.shape[0] // 2]
    else:
        image = array
    energy = np.abs(np.asarray(image, dtype=np.complex128)) ** 2
    total = energy.sum()
    if not np.isfinite(total) or total == 0:
        return  # told when slices are read
    share = max(_central(values) for values in (energy, np.fft.fftshift(energy))) / total
    if share <= IMAGE_SHARE:
        return
    looks = "is k-space" if share >= KSPACE_SHARE else "may be k-space"
    raise DataError(
        f"{file}: is complex and {looks} ({100 * share:.0f} % of the energy in the central 1/64): set data.layout to "
        f'"kspace" (centred), or to "{layout}" if these are images'
    )


def _central(energy: np.ndarray) -> float:
    height, width = energy.shape
    top, left = height // 2 - height // 16, width // 2 - width // 16
    return float(energy[top : top + max(height // 8, 1), left : left + max(width // 8, 1)].sum())
