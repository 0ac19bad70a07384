"""Sampling masks from files: the official SwinMR masks, and the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from swinmr_profiling.training.errors import DataError, first_line, require

# Names under which the official .mat files keep the mask: Gaussian 1-D, Gaussian 2-D, Poisson disc.
MAT_NAMES = ("maskRS1", "maskRS2", "population_matrix")


def read_mask(file: str | Path) -> np.ndarray:
    """The mask in a file, as a boolean array (H, W), the zero frequency at [H // 2, W // 2].

    `.mat`: `maskRS1`, `maskRS2`, `population_matrix`, or the only matrix in the file. `.tif`: 0 and 255, the
    zero frequency in the corners, as in the official radial and spiral masks: divided by 255 and shifted.
    `.npy`: 0 and 1, centred.

    Raises:
        DataError: for a file that cannot be read, that is not a matrix of 0 and 1, or that is not centred.
    """
    path = Path(file)
    readers = {".mat": _read_mat, ".tif": _read_tif, ".tiff": _read_tif, ".npy": _read_npy}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: a mask is a .npy, .mat or .tif file, not {path.suffix or 'without an ending'}"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such mask file; set data.degradation.mask_file")
    values = reader(path)
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(f"{path}: has the shape {values.shape}; a mask is a matrix (height, width)")
    if not np.isin(values, (0, 1)).all():
        raise DataError(f"{path}: holds other values than 0 and 1 (255 in a .tif); a mask is sampled or not")
    mask = values.astype(bool)
    if not mask.any():
        raise DataError(f"{path}: samples nothing")
    _refuse_uncentred(mask, path)
    return mask


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as .npy: {first_line(error)}") from error


def _read_tif(path: Path) -> np.ndarray:
    image = require("PIL.Image", "a .tif mask")
    try:
        with image.open(path) as opened:
            values = np.asarray(opened.convert("L"), dtype=np.float64) / 255
    except OSError as error:
        raise DataError(f"{path}: cannot be read as TIFF: {first_line(error)}") from error
    return np.fft.fftshift(values)


def _read_mat(path: Path) -> np.ndarray:
    scipy_io = require("scipy.io", "a .mat mask")
    try:
        content = scipy_io.loadmat(path)
    except NotImplementedError as error:
        raise DataError(f"{path}: is a MATLAB 7.3 file; save it with -v7, or as .npy") from error
    except Exception as error:  # scipy raises half a dozen types for a file that is none of its own
        raise DataError(f"{path}: cannot be read as .mat: {first_line(error)}") from error
    matrices = {name: value for name, value in content.items() if not name.startswith("__")}
    for name in MAT_NAMES:
        if name in matrices:
            return matrices[name]
    if len(matrices) == 1:
        return next(iter(matrices.values()))
    found = ", ".join(sorted(matrices)) or "nothing"
    raise DataError(f"{path}: holds {found}; the mask is looked for as {', '.join(MAT_NAMES)}")


def _refuse_uncentred(mask: np.ndarray, path: Path) -> None:
    """A mask with its zero frequency in the corners samples noise and no image: a silent failure elsewhere."""
    height, width = mask.shape
    around = (
        slice(height // 2 - height // 8, height // 2 + height // 8 + 1),
        slice(width // 2 - width // 8, width // 2 + width // 8 + 1),
    )
    if np.fft.fftshift(mask)[around].mean() > mask[around].mean():
        hint = " (the official .tif masks are not; they are shifted when read)" if ".tif" in path.name else ""
        raise DataError(
            f"{path}: samples the corners of k-space more than its centre{hint}; save it centred, as .npy"
        )
