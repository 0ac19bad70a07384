"""From the `data` section of a config to the volumes of a split."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.training.data.fastmri_files import open_fastmri
from swinmr_profiling.training.data.npy_files import open_npy
from swinmr_profiling.training.data.packaged import open_packaged
from swinmr_profiling.training.data.phantom import PhantomVolume
from swinmr_profiling.training.data.scanner_files import open_dicom, open_nifti, open_png
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.volumes import Volume

Split = Literal["train", "val", "test"]
ENDINGS: dict[str, tuple[str, ...]] = {
    "fastmri": (".h5", ".hdf5"),
    "npy": (".npy",),
    "nifti": (".nii", ".nii.gz"),
    "dicom": (".dcm", ".ima"),
    "png": (".png",),
}
OPENERS: dict[str, Callable[[Path, str], list]] = {
    "fastmri": open_fastmri,
    "nifti": open_nifti,
    "png": open_png,
}
# DICOM files often have no ending; they have these letters after 128 bytes.
DICOM_MAGIC, DICOM_MAGIC_AT = b"DICM", 128
# What lies beside images and is none: SwinMR's sensitivities beside its imgGT_*.npy, which hold other units.
COMPANIONS = {"npy": ("SensitivityMaps",)}
# Phantoms are the same in every run, and other ones in every split.
PHANTOM_SEEDS: dict[str, int] = {"train": 1, "val": 2, "test": 3}
# Phantom size for networks whose config names no image size.
DEFAULT_IMAGE_HW = (256, 256)


def split_folder(config: ExperimentConfig, split: Split) -> Path | None:
    """The folder of a split, None where none is set."""
    folder = getattr(config.data, f"{split}_dir")
    return None if folder is None else Path(folder)


def has_split(config: ExperimentConfig, split: Split) -> bool:
    """Whether a split exists: always for sources without folders, else where its folder is set."""
    return config.data.resolved_source in ("phantom", "packaged") or split_folder(config, split) is not None


def whole_image_hw(config: ExperimentConfig) -> tuple[int, int]:
    """(height, width) of the phantom: the network's image size, or 256 x 256 where the config has none."""
    if config.image_hw is not None:
        return config.image_hw
    shapes = getattr(config.model, "input_shapes", None)
    if shapes and len(shapes[0]) == 3:
        return shapes[0][1], shapes[0][2]
    return DEFAULT_IMAGE_HW


def open_split(config: ExperimentConfig, split: Split) -> list[Volume]:
    """The volumes of a split, in the order of their names; headers are read, no images.

    Raises:
        DataError: for a folder that is missing, empty or of several kinds, and for a file that cannot be read.
    """
    data = config.data
    source = data.resolved_source
    if source == "phantom":
        slices = data.phantom.slices if split == "train" else data.phantom.val_slices
        name, hw = f"phantom, {split}", whole_image_hw(config)
        return [PhantomVolume(name, slices, hw, PHANTOM_SEEDS[split], coils=data.phantom.coils)]
    if source == "packaged":
        return open_packaged(split)
    folder = split_folder(config, split)
    if folder is None:
        raise DataError(f"data.{split}_dir is not set: name the folder of the {split} data")
    return open_folder(folder, source, f"data.{split}_dir", data.layout)


def open_folder(folder: Path, source: str, key: str, layout: str = "auto") -> list[Volume]:
    """The volumes in a folder and its subfolders; companions of images (`COMPANIONS`) are left out.

    Args:
        folder: where to look.
        source: "fastmri", "npy", "nifti", "dicom", "png", or "auto" for the one kind that is there.
        key: the config key that names the folder, for messages.
        layout: `data.layout`, of .npy files.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {what} ({key})")
    files = _files_by_kind(folder)
    if source == "auto":
        if not files:
            known = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
            raise DataError(f"{folder}: holds no data ({key}); looked for {known}")
        if len(files) > 1:
            counts = " and ".join(f"{len(found)} {kind}" for kind, found in files.items())
            raise DataError(f"{folder}: holds {counts} files ({key}): set data.source to one of them")
        source = next(iter(files))
    companions = COMPANIONS.get(source, ())
    found = [file for file in files.get(source, ()) if not (companions and file.name.startswith(companions))]
    if not found:
        raise DataError(f"{folder}: holds no {' or '.join(ENDINGS[source])} file ({key}, source {source})")
    named = [(file, file.relative_to(folder).as_posix()) for file in found]
    if source == "dicom":
        return list(open_dicom(named))
    if source == "npy":
        return [volume for file, name in named for volume in open_npy(file, name, layout)]
    return [volume for file, name in named for volume in OPENERS[source](file, name)]


def _files_by_kind(folder: Path) -> dict[str, list[Path]]:
    """Files of every known kind, sorted; hidden files and folders are left out."""
    found: dict[str, list[Path]] = {}
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = Path(parent, name)
            # A pipe or a device would be waited for; a broken link is told by its reader.
            if name.startswith(".") or (file.exists() and not file.is_file()):
                continue
            kind = _kind_of(file)
            if kind is not None:
                found.setdefault(kind, []).append(file)
    return {kind: sorted(files) for kind, files in sorted(found.items())}


def _kind_of(file: Path) -> str | None:
    lower = file.name.lower()
    for kind, endings in ENDINGS.items():
        if lower.endswith(endings):
            return kind
    # Numbers with points (1.2.840...), as scanners name files, look like endings.
    if file.suffix and not file.suffix[1:].isdigit():
        return None
    try:
        with file.open("rb") as opened:
            return "dicom" if opened.read(DICOM_MAGIC_AT + 4)[DICOM_MAGIC_AT:] == DICOM_MAGIC else None
    except OSError:
        return None
