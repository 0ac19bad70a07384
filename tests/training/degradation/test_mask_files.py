"""Masks from files as the official ones are stored, and what is refused."""

import numpy as np
import PIL.Image
import pytest
import scipy.io

from swinmr_profiling.training.degradation.mask_files import read_mask
from swinmr_profiling.training.errors import DataError


def centred():
    """Dense around [8, 6] of 16 x 12."""
    mask = np.zeros((16, 12), dtype=np.uint8)
    mask[6:11, 4:9] = 1
    mask[0, ::3] = 1
    return mask


@pytest.mark.parametrize("name", ["maskRS1", "maskRS2", "population_matrix", "anything"])
def test_mat_files_by_their_official_names_or_the_only_one(tmp_path, name):
    scipy.io.savemat(tmp_path / "mask.mat", {name: centred().astype(float)})
    mask = read_mask(tmp_path / "mask.mat")
    assert mask.dtype == bool
    assert np.array_equal(mask, centred())


def test_official_names_win_over_other_matrices(tmp_path):
    scipy.io.savemat(tmp_path / "mask.mat", {"a": np.ones((2, 2)), "maskRS1": centred()})
    assert np.array_equal(read_mask(tmp_path / "mask.mat"), centred())


def test_tif_files_are_divided_by_255_and_shifted(tmp_path):
    """The official radial and spiral masks have their zero frequency at [0, 0]."""
    stored = np.fft.ifftshift(centred() * 255)
    assert stored[0, 0] == 255
    PIL.Image.fromarray(stored).save(tmp_path / "radial_30.tif")
    assert np.array_equal(read_mask(str(tmp_path / "radial_30.tif")), centred())


def test_npy_files_are_taken_as_they_are(tmp_path):
    np.save(tmp_path / "mask.npy", centred())
    assert np.array_equal(read_mask(tmp_path / "mask.npy"), centred())


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("mask.npy", lambda f: None, "no such mask file; set data.degradation.mask_file"),
        ("mask.txt", lambda f: f.write_text("1"), r"a mask is a \.npy, \.mat or \.tif file, not \.txt"),
        ("mask.npy", lambda f: f.write_text("1"), r"cannot be read as \.npy"),
        ("mask.mat", lambda f: f.write_text("1" * 200), r"cannot be read as \.mat"),
        ("mask.tif", lambda f: f.write_text("1"), "cannot be read as TIFF"),
        (
            "mask.npy",
            lambda f: np.save(f, np.ones((2, 3, 4))),
            r"has the shape \(2, 3, 4\); a mask is a matrix",
        ),
        ("mask.npy", lambda f: np.save(f, np.full((4, 4), 0.5)), "holds other values than 0 and 1"),
        ("mask.npy", lambda f: np.save(f, np.zeros((4, 4))), "samples nothing"),
        (
            "mask.npy",
            lambda f: np.save(f, np.fft.ifftshift(centred())),
            "samples the corners .* save it centred",
        ),
        ("mask.tif", lambda f: PIL.Image.fromarray(centred() * 255).save(f), r"official \.tif masks are not"),
        (
            "mask.mat",
            lambda f: scipy.io.savemat(f, {"a": np.ones((2, 2)), "b": np.ones((2, 2))}),
            "holds a, b; the mask is looked for as maskRS1",
        ),
        ("mask.mat", lambda f: f.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM"), "MATLAB 7.3"),
    ],
)
def test_what_is_no_mask_is_refused_by_name(tmp_path, name, write, message):
    file = tmp_path / name
    write(file)
    with pytest.raises(DataError, match=message) as caught:
        read_mask(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)
