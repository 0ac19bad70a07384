"""Slices stand upright by their file's directions, and are cut to the object."""

import numpy as np
import pytest

from swinmr_profiling.training.data.packaged import open_packaged
from swinmr_profiling.training.data.scanner_files import open_nifti
from swinmr_profiling.training.evaluation.picture_grid import (
    axes_by_volume,
    axes_of_slice,
    in_two_lines,
    object_box,
    upright,
)

# A picture as it is to be seen: a radiologist's axial slice (or a coronal, a sagittal one).
WANTED = np.array([["top left", "top right"], ["bottom left", "bottom right"]])
CORNERS = {
    # anterior is up, the patient's right on the left of the page
    "axial": {
        ("A", "R"): "top left",
        ("A", "L"): "top right",
        ("P", "R"): "bottom left",
        ("P", "L"): "bottom right",
    },
    "coronal": {
        ("S", "R"): "top left",
        ("S", "L"): "top right",
        ("I", "R"): "bottom left",
        ("I", "L"): "bottom right",
    },
    "sagittal": {
        ("S", "A"): "top left",
        ("S", "P"): "top right",
        ("I", "A"): "bottom left",
        ("I", "P"): "bottom right",
    },
}
OPPOSITE = dict(zip("RLAPSI", "LRPAIS", strict=True))


@pytest.mark.parametrize("view", CORNERS)
def test_every_way_to_store_a_slice(view):
    corners = CORNERS[view]
    vertical, horizontal = next(iter(corners))
    pairs = [
        (one, other)
        for first, second in ((vertical, horizontal), (horizontal, vertical))
        for one in (first, OPPOSITE[first])
        for other in (second, OPPOSITE[second])
    ]
    assert len(pairs) == 8
    for axes in pairs:
        stored = np.empty((2, 2), dtype=object)
        for row in range(2):
            for column in range(2):
                # Index 1 lies in the axis's direction, index 0 in the opposite one.
                ends = {
                    axes[0] if row else OPPOSITE[axes[0]],
                    axes[1] if column else OPPOSITE[axes[1]],
                }
                stored[row, column] = next(text for key, text in corners.items() if set(key) == ends)
        assert (upright(stored, axes) == WANTED).all(), axes
    assert (upright(WANTED, None) == WANTED).all()


def test_a_nifti_says_its_directions(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    data = np.zeros((4, 6, 2), dtype=np.float32)
    # X grows to the patient's left, Y to the back.
    nibabel.save(nibabel.Nifti1Image(data, np.diag([-2.0, -2, 3, 1])), tmp_path / "a.nii.gz")
    bare = nibabel.Nifti1Image(data, None)
    bare.header["sform_code"] = bare.header["qform_code"] = 0
    nibabel.save(bare, tmp_path / "b.nii")
    volumes = [open_nifti(tmp_path / name, name)[0] for name in ("a.nii.gz", "b.nii")]
    found = axes_by_volume(volumes)
    assert found == {"a.nii.gz": ("L", "P")}
    assert axes_of_slice("a.nii.gz, slice 1", found) == ("L", "P")
    assert axes_of_slice("b.nii, slice 1", found) is None
    # nibabel's own head: X to the left, Y to the front, as its documentation's example prints it.
    assert {volume.axes for volume in open_packaged("test")} == {("L", "A")}


def test_cut_to_the_object():
    image = np.zeros((100, 50), dtype=np.float32)
    image[30:60, 10:20] = 1.0
    image[5, 45] = 1.0  # one stray pixel is no object
    # 4 % of each side as a margin: 4 rows, 2 columns.
    assert object_box(image) == (slice(26, 64), slice(8, 22))
    assert object_box(np.zeros((4, 6))) == (slice(0, 4), slice(0, 6))


def test_a_long_name_is_broken_at_a_comma():
    name = "nibabel example4d, time 0, positions 20 to 23, slice 0"
    assert in_two_lines(name) == "nibabel example4d, time 0,\npositions 20 to 23, slice 0"
    assert in_two_lines("short, slice 0") == "short, slice 0"
    assert in_two_lines("x" * 80) == "x" * 80
