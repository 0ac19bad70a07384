"""fastMRI files: `.h5` with measured k-space of one coil or several, and a reconstruction as the target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from swinmr_profiling.training.errors import DataError, first_line, require
from swinmr_profiling.training.volumes import RawSlice, Volume

# Targets in the order they are looked for: of several coils, of one coil (emulated).
TARGETS = ("reconstruction_rss", "reconstruction_esc")
# Sensitivities of the coils, of k-space's shape: fastMRI's own files have none, files of others have them.
COIL_MAPS = ("sensitivity_maps", "sens_maps")
# The scanner's description of the acquisition, as fastMRI's files carry it (ISMRMRD's XML).
HEADER = "ismrmrd_header"
MAX_HEADER_BYTES = 2**20


@dataclass(frozen=True)
class FastMriVolume(Volume):
    """One fastMRI file. It is opened for every access: an HDF5 handle that processes share hangs them."""

    file: Path
    measured_hw: tuple[int, int]
    target: str | None
    coil_maps: str | None = None
    # First measured column and first after them; the scanner's zeros are outside. None where the file does not say.
    measured_columns: tuple[int, int] | None = None

    @property
    def kspace_hw(self) -> tuple[int, int]:
        """As the file has it: the image may be its centre."""
        return self.measured_hw

    def read(self, index: int) -> RawSlice:
        """Measured k-space (coils, H', W'), the file's target or the k-space's own reconstruction, and sensitivities.

        A target that is larger than `image_hw` is cropped to it; sensitivities are there where the file has them.
        """
        h5py = require("h5py", "fastMRI data")
        with h5py.File(self.file, "r") as opened:
            kspace = np.asarray(opened["kspace"][index], dtype=np.complex64)
            image = None if self.target is None else np.asarray(opened[self.target][index], dtype=np.float32)
            maps = None
            if self.coil_maps is not None:
                maps = _normalised(np.asarray(opened[self.coil_maps][index], dtype=np.complex64))
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
            measured = _measured_columns(opened, shape[-1] if shape else 0)
            stored_bytes = kspace.id.get_storage_size()
    except (OSError, RuntimeError) as error:
        text = first_line(error)
        advice = "copy or download it again" if "truncated" in text else "is it an HDF5 file?"
        raise DataError(f"{file}: cannot be read: {text}; {advice}") from error
    for is_refused, text in (
        (
            kind != "c" or len(shape) not in (3, 4) or 0 in shape,
            f"kspace has the shape {shape} and kind {kind!r}; expected complex, slices x H x W or slices x coils x H "
            "x W",
        ),
        (
            stored_bytes == 0,
            f"declares kspace of {shape} and stores none of it: copy or download it again",
        ),
        (
            undersampled,
            f"is undersampled already (a mask, no {' or '.join(TARGETS)}): there is nothing to compare with; leave "
            "test and challenge files out",
        ),
    ):
        if is_refused:
            raise DataError(f"{file}: {text}")
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
    return [
        FastMriVolume(
            name,
            shape[0],
            image_hw,
            file,
            kspace_hw,
            target,
            coil_maps,
            measured,
            kspace_simulated=False,
            magnitude_only=False,
            coils=shape[1] if len(shape) == 4 else 1,
            has_coil_maps=coil_maps is not None,
        )
    ]


def _measured_columns(opened: Any, columns: int) -> tuple[int, int] | None:
    """`padding_left` and `padding_right` of a file: its attributes, or as fastMRI computes them from the header.

    None where it has neither, where they cannot be read, and where all columns were measured.
    """
    try:
        if "padding_left" in opened.attrs and "padding_right" in opened.attrs:
            first, end = int(opened.attrs["padding_left"]), int(opened.attrs["padding_right"])
        else:
            first, end = _limits_in_header(opened)
    except (KeyError, TypeError, ValueError, AttributeError, OSError, ElementTree.ParseError):
        return None
    first, end = max(first, 0), min(end, columns)
    return None if first >= end or (first, end) == (0, columns) else (first, end)


def _limits_in_header(opened: Any) -> tuple[int, int]:
    header = opened[HEADER]
    if header.shape != () or header.id.get_storage_size() > MAX_HEADER_BYTES:
        raise ValueError("no header")
    root = ElementTree.fromstring(header[()])

    def number(*path: str) -> int:
        found = root.find("/".join(f"{{*}}{part}" for part in path))
        return int(found.text)  # type: ignore[union-attr, arg-type]

    limits = ("encoding", "encodingLimits", "kspace_encoding_step_1")
    first = number("encoding", "encodedSpace", "matrixSize", "y") // 2 - number(*limits, "center")
    return first, first + number(*limits, "maximum") + 1
