"""Files that declare more than there is, or are no longer what they were: one line each, that names file and slice."""

import gzip
import os
import zlib

import numpy as np
import pytest

from swinmr_profiling.configs.sections.data import DegradationSection
from swinmr_profiling.training import volumes
from swinmr_profiling.training.data.dataset import ReconstructionDataset
from swinmr_profiling.training.data.npy_files import NpyVolume
from swinmr_profiling.training.data.sources import open_folder
from swinmr_profiling.training.errors import DataError

GIB = 2**30


@pytest.fixture
def four_gib_free(monkeypatch):
    monkeypatch.setattr(volumes, "available_bytes", lambda: 4 * GIB)


def dataset(folder, source="auto"):
    return ReconstructionDataset(
        open_folder(folder, source, "data.train_dir"), DegradationSection(), training=True
    )


def refused(folder, *words, source="auto", index=0):
    with pytest.raises(DataError) as error:
        dataset(folder, source)[index]
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), error.value


def kspace_file(file, shape, dtype=np.complex64, fill=False):
    h5py = pytest.importorskip("h5py")
    with h5py.File(file, "w") as opened:
        data = opened.create_dataset(
            "kspace", shape, dtype=dtype, chunks=(1, *[min(n, 64) for n in shape[1:]])
        )
        if fill:
            data[(0,) * (len(shape) - 2)] = np.ones(shape[-2:], dtype)


def test_an_hdf5_that_declares_27_gib_and_stores_nothing(tmp_path):
    # 1 x 60,000 x 60,000 complex64: 26.8 GiB in a file of a few KiB.
    kspace_file(tmp_path / "a.h5", (1, 60_000, 60_000))
    assert (tmp_path / "a.h5").stat().st_size < 2**16
    refused(tmp_path, "a.h5", "(1, 60000, 60000)", "stores none of it")


def test_an_hdf5_that_declares_more_than_is_free(tmp_path, four_gib_free):
    h5py = pytest.importorskip("h5py")
    for name, shape in (("coils", (1, 600, 1000, 1000)), ("side", (1, 60_000, 60_000))):
        folder = tmp_path / name
        folder.mkdir()
        kspace_file(folder / "a.h5", shape)
        with h5py.File(folder / "a.h5", "a") as opened:
            opened["kspace"][(0,) * (len(shape) - 1)] = np.ones(shape[-1], np.complex64)
        refused(folder, "a.h5", "GiB of memory, and 4.0 GiB are free")


def test_a_file_that_declares_endless_slices(tmp_path, four_gib_free):
    volume = NpyVolume("a.npy", 10**12, (8, 8), tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"declares 1000000000000 slices"):
        ReconstructionDataset([volume], DegradationSection(), training=True)


def test_a_picture_and_an_array_that_declare_more_than_is_free(tmp_path, four_gib_free):
    pytest.importorskip("PIL")
    header = b"IHDR" + (65_000).to_bytes(4, "big") * 2 + bytes((8, 0, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + header + zlib.crc32(header).to_bytes(4, "big")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/bomb.png").write_bytes(png + bytes(8))
    refused(tmp_path / "a", "bomb.png")
    (tmp_path / "b").mkdir()
    with (tmp_path / "b/sparse.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(
            stream, {"descr": "<f4", "fortran_order": False, "shape": (1, 60_000, 60_000)}
        )
        stream.truncate(200 + 4 * 60_000**2)
    refused(tmp_path / "b", "sparse.npy", "60000 x 60000")


def test_a_compressed_volume_that_is_damaged_inside(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    file = tmp_path / "a.nii.gz"
    image = nibabel.Nifti1Image(np.random.default_rng(0).random((64, 64, 8), np.float32), np.eye(4))
    nibabel.save(image, file)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    file.write_bytes(data)
    with pytest.raises((zlib.error, OSError, EOFError)):
        gzip.decompress(data)
    refused(tmp_path, "a.nii.gz, slice 3", "cannot be read", index=3)


def test_a_file_that_became_another_since_it_was_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 16, 16), np.float32))
    data = dataset(tmp_path)
    np.save(tmp_path / "a.npy", np.ones((4, 8, 8), np.float32))
    with pytest.raises(DataError, match=r"a\.npy, slice 2: has the shape \(8, 8\)"):
        data[2]
    np.save(tmp_path / "a.npy", np.ones((1, 16, 16), np.float32))
    with pytest.raises(DataError, match=r"a\.npy, slice 2: cannot be read"):
        data[2]
    (tmp_path / "a.npy").unlink()
    with pytest.raises(DataError, match=r"a\.npy"):
        data[2]


def test_pipes_among_the_data_are_not_waited_for(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 16, 16), np.float32))
    for name in ("pipe", "pipe.h5", "pipe.npy"):
        os.mkfifo(tmp_path / name)
    assert len(dataset(tmp_path)) == 2
