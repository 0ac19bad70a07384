"""Which source a config means, and data that cannot be used: said in one line."""

import gzip
import importlib
import re

import h5py
import nibabel
import numpy as np
import pytest
from pydicom.uid import generate_uid

from swinmr_profiling.training.data.sources import has_split, open_folder, open_split
from swinmr_profiling.training.errors import DataError, require
from swinmr_profiling.training.volumes import read_slice
from tests.training.data.test_sources import config, random, write_dicom, write_fastmri


def test_the_config_decides_the_source(tmp_path):
    np.save(tmp_path / "a.npy", random(5, 4))
    (phantom,) = open_split(config(phantom={"slices": 5, "val_slices": 2, "coils": 3}), "train")
    assert (phantom.slices, phantom.image_hw, phantom.coils) == (5, (24, 40), 3)
    assert [open_split(config(phantom={"val_slices": 2}), s)[0].slices for s in ("val", "test")] == [2, 2]
    own = config(train_dir=str(tmp_path))
    assert [v.name for v in open_split(own, "train")] == ["a.npy"]
    assert (has_split(own, "train"), has_split(own, "val"), has_split(config(), "val")) == (True, False, True)
    with pytest.raises(DataError, match=r"^data\.val_dir is not set"):
        open_split(own, "val")


@pytest.mark.parametrize(
    ("write", "source", "message"),
    [
        (lambda d: d.rmdir(), "auto", r"no such folder \(data\.train_dir\)"),
        (lambda d: (d.rmdir(), d.write_text("")), "auto", r"is a file, not a folder \(data\.train_dir\)"),
        (lambda d: None, "auto", r"holds no data \(data\.train_dir\); looked for \.h5, \.hdf5, \.npy"),
        (lambda d: None, "npy", r"holds no \.npy file \(data\.train_dir, source npy\)"),
        (
            lambda d: (np.save(d / "a.npy", random(4, 4)), (d / "b.png").write_text("")),
            "auto",
            r"holds 1 npy and 1 png files \(data\.train_dir\): set data\.source",
        ),
        (lambda d: (d / "b.png").write_text("no"), "auto", r"b\.png: cannot be read as an image"),
        (lambda d: (d / "b.dcm").write_text("no"), "auto", r"b\.dcm: cannot be read as DICOM"),
        (lambda d: (d / "b.nii").write_text("no"), "auto", r"b\.nii: cannot be read as NIfTI"),
        (
            lambda d: nibabel.save(nibabel.Nifti1Image(random(2, 2, 2, 2, 2), np.eye(4)), d / "b.nii"),
            "auto",
            r"b\.nii: has the shape \(2, 2, 2, 2, 2\)",
        ),
        (
            lambda d: nibabel.save(
                nibabel.Nifti1Image(np.zeros((4, 4, 2), dtype=[(c, "u1") for c in "RGB"]), np.eye(4)),
                d / "b.nii",
            ),
            "auto",
            r"b\.nii: holds .*colours",
        ),
        (lambda d: (d / "b.npy").write_text("no"), "auto", r"b\.npy: cannot be read as \.npy"),
        (lambda d: (d / "b.h5").write_text("no"), "auto", r"b\.h5: cannot be read: .*is it an HDF5 file\?"),
        (
            lambda d: np.save(d / "b.npy", np.array([{"run": "code"}], dtype=object)),
            "auto",
            r"b\.npy: cannot be read as \.npy: .*[Oo]bject",
        ),
        (lambda d: np.save(d / "b.npy", random(2, 2, 4, 4)), "auto", r"b\.npy: has the shape \(2, 2, 4, 4\)"),
        (
            lambda d: np.save(d / "b.npy", np.full((4, 4), "x")),
            "auto",
            r"b\.npy: holds <U1; expected numbers",
        ),
        (
            lambda d: write_fastmri(d / "b.h5", random(2, 4, 4)),
            "auto",
            r"b\.h5: kspace has .* expected complex",
        ),
        (
            lambda d: write_fastmri(d / "b.h5", random(2, 4, 4) + 0j, mask=np.ones(4)),
            "auto",
            r"b\.h5: is undersampled already",
        ),
        (
            lambda d: write_fastmri(d / "b.h5", random(2, 4, 4) + 0j, reconstruction_esc=random(2, 6, 3)),
            "auto",
            r"b\.h5: reconstruction_esc has the shape \(2, 6, 3\), kspace \(2, 4, 4\)",
        ),
        (
            lambda d: h5py.File(d / "b.h5", "w").create_dataset("images", data=[1.0]).file.close(),
            "auto",
            r"b\.h5: has no dataset kspace \(it has images\)",
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(tmp_path, write, source, message):
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder)
    with pytest.raises(DataError, match=message) as caught:
        open_folder(folder, source, "data.train_dir")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_h5_is_named_when_the_folder_is_opened(tmp_path):
    write_fastmri(tmp_path / "whole.h5", random(2, 64, 64) + 0j)
    content = (tmp_path / "whole.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"cut\.h5: cannot be read: .*truncated.*; copy or download it again"):
        open_folder(tmp_path, "fastmri", "data.train_dir")


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_truncated_nifti_is_named_when_it_is_read(tmp_path, ending):
    nibabel.save(nibabel.Nifti1Image(random(64, 64, 4), np.eye(4)), tmp_path / f"cut{ending}")
    content = (tmp_path / f"cut{ending}").read_bytes()
    (tmp_path / f"cut{ending}").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=re.escape(f"cut{ending}")):
        read_slice(open_folder(tmp_path, "auto", "data.train_dir")[0], 3)


def test_a_file_that_vanishes_is_named_when_it_is_read(tmp_path):
    write_fastmri(tmp_path / "scan.h5", random(2, 8, 8) + 0j)
    np.save(tmp_path / "a.npy", random(4, 4))
    volumes = [*open_folder(tmp_path, "fastmri", "d"), *open_folder(tmp_path, "npy", "d")]
    (tmp_path / "scan.h5").unlink()
    (tmp_path / "a.npy").unlink()
    for volume in volumes:
        with pytest.raises(DataError, match=volume.name):
            read_slice(volume, 0)


def test_dicom_without_an_image_or_in_colour_is_refused(tmp_path):
    write_dicom(tmp_path / "a.dcm", np.zeros((4, 4)), generate_uid(), 1, SamplesPerPixel=3)
    with pytest.raises(DataError, match=r"a\.dcm: is a colour image"):
        open_folder(tmp_path, "dicom", "data.train_dir")
    write_dicom(tmp_path / "a.dcm", np.zeros((4, 4)), generate_uid(), 1, Rows=None)
    with pytest.raises(DataError, match=r"a\.dcm: is DICOM without an image"):
        open_folder(tmp_path, "dicom", "data.train_dir")


def test_a_missing_package_is_asked_for_by_name(monkeypatch):
    real = importlib.import_module

    def without_h5py(name, *arguments):
        if name == "h5py":
            raise ImportError("No module named 'h5py'")
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", without_h5py)
    with pytest.raises(DataError, match=re.escape('pip install ".[train]", or pip install h5py')):
        require("h5py", "fastMRI data")
    assert require("gzip", "x") is gzip


def test_a_worker_exception_keeps_its_one_line():
    caught = "Caught DataError in DataLoader worker process 0."
    wrapped = f'{caught}\nTraceback\n  File "x"\ntraining.errors.DataError: a.npy: bad\n'
    assert str(DataError(wrapped)) == "a.npy: bad"
