"""fastMRI files: `.h5` with measured k-space of one coil or several, and a reconstruction as the target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swinmr_profiling.training.errors import DataError, first_line
from swinmr_profiling.training.optional_packages import require
from swinmr_profiling.training.volumes import RawSlice

# Targets in the order they are looked for: of several coils, of one coil (emulated).
TARGETS = ("reconstruction_rss", "reconstruction_esc")
# Sensitivities of the coils, of k-space's shape: fastMRI's own files have none, files of others have them.
COIL_MAPS = ("sensitivity_maps", "sens_maps")


@dataclass(frozen=True)
class FastMriVolume:
    """One fastMRI file. It is opened for every access: an HDF5 handle that processes share hangs them."""

    name: str
    file: Path
    slices: int
    image_hw: tuple[int, int]
    kspace_hw: tuple[int, int]
    target: str | None
    coils: int = 1
    coil_maps: str | None = None
    kspace_simulated: bool = False
    magnitude_only: bool = False

    @property
    def has_coil_maps(self) -> bool:
        """Whether the coils' sensitivities are in the file."""
        return self.coil_maps is not None

    def read(self, index: int) -> RawSlice:
        """Measured k-space (coils, H', W'), the file's target or the k-space's own reconstruction, and sensitivities.

        A target that is larger than `image_hw` is cropped to it; sensitivities are there where the file has them.
        """
        h5py = require("h5py", "fastMRI data")
        try:
            with h5py.File(self.file, "r") as opened:
                kspace = np.asarray(opened["kspace"][index], dtype=np.complex64)
                image = (
                    None if self.target is None else np.asarray(opened[self.target][index], dtype=np.float32)
                )
                maps = None
                if self.coil_maps is not None:
                    maps = _normalised(np.asarray(opened[self.coil_maps][index], dtype=np.complex64))
        except (OSError, KeyError, RuntimeError) as error:
            raise DataError(f"{self.file}, slice {index}: cannot be read: {first_line(error)}") from error
        kspace = kspace.reshape(-1, *kspace.shape[-2:])
        image = reconstruct(kspace) if image is None else _cropped(image, self.image_hw)
        return RawSlice(image, kspace, maps)


def _normalised(maps: np.ndarray) -> np.ndarray:
    """Sensitivities with a sum of squares of 1, so that the image they make has the unit of a root sum of squares."""
    size = np.sqrt((np.abs(maps) ** 2).sum(0, keepdims=True))
    return np.divide(maps, size, out=np.zeros_like(maps), where=size > 0)


def _cropped(image: np.ndarray, size_hw: tuple[int, int]) -> np.ndarray:
    top, left = ((side - wanted) // 2 for side, wanted in zip(image.shape, size_hw, strict=True))
    return image[top : top + size_hw[0], left : left + size_hw[1]]


def reconstruct(kspace: np.ndarray) -> np.ndarray:
    """Root sum of squares of the inverse transform: what fastMRI's own targets are, before the crop."""
    axes = (-2, -1)
    images = np.fft.fftshift(
        np.fft.ifft2(np.fft.ifftshift(kspace, axes=axes), axes=axes, norm="ortho"), axes=axes
    )
    return np.sqrt((np.abs(images) ** 2).sum(0)).astype(np.float32)


def open_fastmri(file: Path, name: str) -> list[FastMriVolume]:
    """The volume of a file: its header is read, no slice.

    Raises DataError for a file that is truncated or no HDF5, has no complex `kspace` (slices, H, W) or
    (slices, coils, H, W), has a target that does not fit, or was undersampled already (no target, a `mask`).
    """
    h5py = require("h5py", "fastMRI data")
    try:
        with h5py.File(file, "r") as opened:
            if "kspace" not in opened:
                raise DataError(
                    f"{file}: has no dataset kspace (it has {', '.join(opened) or 'none'}); fastMRI files do"
                )
            kspace = opened["kspace"]
            target = next((key for key in TARGETS if key in opened), None)
            target_shape = None if target is None else opened[target].shape
            coil_maps = next((key for key in COIL_MAPS if key in opened), None)
            maps_shape = None if coil_maps is None else opened[coil_maps].shape
            shape, kind = kspace.shape, kspace.dtype.kind
            undersampled = target is None and "mask" in opened
    except (OSError, RuntimeError) as error:
        text = first_line(error)
        advice = "copy or download it again" if "truncated" in text else "is it an HDF5 file?"
        raise DataError(f"{file}: cannot be read: {text}; {advice}") from error
    if kind != "c" or len(shape) not in (3, 4) or 0 in shape:
        raise DataError(
            f"{file}: kspace has the shape {shape} and kind {kind!r}; expected complex, "
            "slices x H x W or slices x coils x H x W"
        )
    if undersampled:
        raise DataError(
            f"{file}: is undersampled already (a mask, no {' or '.join(TARGETS)}): there is nothing to compare "
            "with; leave test and challenge files out"
        )
    kspace_hw = tuple(shape[-2:])
    image_hw = kspace_hw
    if target_shape is not None:
        image_hw = tuple(target_shape[-2:])
        fits = len(target_shape) == 3 and target_shape[0] == shape[0]
        if image_hw[1] > kspace_hw[1] and image_hw[0] >= kspace_hw[1]:
            # As fastMRI's transforms do for its files of FLAIR_203: a square as wide as k-space.
            image_hw = (kspace_hw[1], kspace_hw[1])
        if not fits or image_hw[0] > kspace_hw[0] or image_hw[1] > kspace_hw[1]:
            raise DataError(f"{file}: {target} has the shape {target_shape}, kspace {shape}: they do not fit")
    if maps_shape is not None and maps_shape != shape:
        raise DataError(f"{file}: {coil_maps} has the shape {maps_shape}, kspace {shape}: they do not fit")
    coils = shape[1] if len(shape) == 4 else 1
    return [FastMriVolume(name, file, shape[0], image_hw, kspace_hw, target, coils, coil_maps)]
