"""Images as scanners and neuroimaging tools write them, NIfTI and DICOM, and in plain files: PNG."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from swinmr_profiling.training.errors import DataError, first_line, require
from swinmr_profiling.training.volumes import RawSlice, Volume

# A compressed NIfTI is unpacked whole for any slice of it: the last few stay in memory, in each loader process.
UNPACKED_VOLUMES = 4
BLOCK_BYTES = 2**22


@dataclass(frozen=True)
class NiftiVolume(Volume):
    """One NIfTI image, (X, Y, slices) or (X, Y, slices, times); slices are counted through all times.

    The array's first axis is the image's height, as it is in the file: nothing is reoriented.
    """

    file: Path
    positions: int

    def read(self, index: int) -> RawSlice:
        """The image (H, W) at position index % positions and time index // positions, rescaled."""
        time, position = divmod(index, self.positions)
        packed = self.file.suffix == ".gz"
        source = _unpacked(self.file, self.magnitude_only) if packed else _load_nifti(self.file).dataobj
        place = {2: (), 3: (position,), 4: (position, time)}[len(source.shape)]
        pixels: tuple[Any, ...] = (slice(None), slice(None), *place)
        image = np.asarray(source[pixels])
        return RawSlice(image.astype(np.float32 if self.magnitude_only else np.complex64))


def _load_nifti(file: Path) -> Any:
    nibabel = require("nibabel", "NIfTI data")
    try:
        return nibabel.load(file)
    except (OSError, EOFError, nibabel.filebasedimages.ImageFileError) as error:
        raise DataError(f"{file}: cannot be read as NIfTI: {first_line(error)}") from error


@lru_cache(maxsize=UNPACKED_VOLUMES)
def _unpacked(file: Path, real: bool) -> np.ndarray:
    # To its very end, where the checksum stands: nibabel stops at the last voxel and takes damaged ones as they are.
    with gzip.open(file) as stream:
        while stream.read(BLOCK_BYTES):
            pass
    return np.asarray(_load_nifti(file).dataobj, dtype=np.float32 if real else np.complex64)


def open_nifti(file: Path, name: str) -> list[NiftiVolume]:
    """The volume of a file: its header is read, no slice. Raises DataError for other than 2 to 4 axes."""
    image = _load_nifti(file)
    shape = tuple(image.shape)
    if len(shape) not in (2, 3, 4) or 0 in shape:
        raise DataError(
            f"{file}: has the shape {shape}; expected (X, Y), (X, Y, slices) or (.., .., .., times)"
        )
    if image.get_data_dtype().kind not in "iufc":
        raise DataError(f"{file}: holds {image.get_data_dtype()} (colours?); expected one number per voxel")
    positions, times = (*shape[2:], 1, 1)[:2]
    return [
        NiftiVolume(
            name,
            positions * times,
            shape[:2],
            file,
            positions,
            magnitude_only=image.get_data_dtype().kind != "c",
            axes=directions_of(image),
        )
    ]


def directions_of(image: Any) -> tuple[str, str] | None:
    """Where the first two axes of an image of nibabel's point: "R" or "L", "A" or "P", "S" or "I".

    None where neither of the header's two transformations is set, or they are no such directions.
    """
    header = image.header
    if not any(name in header and int(header[name]) > 0 for name in ("sform_code", "qform_code")):
        return None
    codes = require("nibabel", "NIfTI data").aff2axcodes(image.affine)[:2]
    return None if None in codes else (str(codes[0]), str(codes[1]))


@dataclass(frozen=True)
class DicomVolume(Volume):
    """One DICOM series: (file, frame) of every slice, in the order of the instance numbers."""

    frames: tuple[tuple[Path, int], ...]

    def read(self, index: int) -> RawSlice:
        """The image (H, W), float32, bright is high, with the rescale slope and intercept applied."""
        file, frame = self.frames[index]
        dataset = _read_dicom(file, header_only=False)
        try:
            pixels = np.asarray(dataset.pixel_array, dtype=np.float32)
        except Exception as error:  # a decoder may raise anything, or be missing
            raise DataError(f"{file}: its pixels cannot be decoded: {first_line(error)}") from error
        image = pixels[frame] if pixels.ndim == 3 else pixels
        if getattr(dataset, "PhotometricInterpretation", "") == "MONOCHROME1":
            image = _white_to_black(image, dataset)
        slope, intercept = getattr(dataset, "RescaleSlope", 1), getattr(dataset, "RescaleIntercept", 0)
        return RawSlice(image * np.float32(slope) + np.float32(intercept))


def _white_to_black(image: np.ndarray, dataset: Any) -> np.ndarray:
    """MONOCHROME1 shows the lowest stored value as white (DICOM PS3.3, C.7.6.3.1.2): here bright is high."""
    bits = int(getattr(dataset, "BitsStored", None) or dataset.BitsAllocated)
    signed = int(getattr(dataset, "PixelRepresentation", 0) or 0)
    lowest_and_highest = np.float32(-1 if signed else 2**bits - 1)  # their sum
    return lowest_and_highest - image


def _read_dicom(file: Path, header_only: bool) -> Any:
    pydicom = require("pydicom", "DICOM data")
    try:
        return pydicom.dcmread(file, stop_before_pixels=header_only)
    except Exception as error:  # pydicom raises half a dozen types for a file that is none of its own
        raise DataError(f"{file}: cannot be read as DICOM: {first_line(error)}") from error


def open_dicom(files: list[tuple[Path, str]]) -> list[DicomVolume]:
    """The volumes of (file, name) pairs: one per series and image size; headers are read, no pixels.

    A volume has the name of its first file. Raises DataError for colour images and files without an image.
    """
    series: dict[tuple, list[tuple[int, str, Path, int]]] = {}
    for file, name in files:
        header = _read_dicom(file, header_only=True)
        rows, columns = getattr(header, "Rows", None), getattr(header, "Columns", None)
        if not rows or not columns:
            raise DataError(f"{file}: is DICOM without an image; leave it out of the folder")
        if getattr(header, "SamplesPerPixel", 1) != 1:
            raise DataError(f"{file}: is a colour image; expected one grey value per pixel")
        key = (str(getattr(header, "SeriesInstanceUID", name)), (int(rows), int(columns)))
        instance = int(getattr(header, "InstanceNumber", None) or 0)
        frames = int(getattr(header, "NumberOfFrames", None) or 1)
        series.setdefault(key, []).append((instance, name, file, frames))
    volumes = []
    for (_, image_hw), members in series.items():
        members.sort(key=lambda member: member[:2])
        slices = tuple((file, frame) for _, _, file, count in members for frame in range(count))
        volumes.append(DicomVolume(members[0][1], len(slices), image_hw, slices))
    return volumes


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
