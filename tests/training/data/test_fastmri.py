"""fastMRI's files against its published formulas, and against the package `fastmri` where that is installed.

What is compared is the whole way of a slice: the mask of its file's name, the scanner's padding, the inverse
transform, the crop to the target (FLAIR_203's too) and the root sum of squares of the coils.
"""

import h5py
import numpy as np
import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.dataset import build_dataset
from swinmr_profiling.training.data.fastmri_files import open_fastmri
from swinmr_profiling.training.degradation.fastmri_masks import FASTMRI_MASKS, padded_columns_left_out
from swinmr_profiling.training.errors import DataError

HEADER = """<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>
<encodedSpace><matrixSize><x>64</x><y>{encoded}</y><z>1</z></matrixSize></encodedSpace>
<reconSpace><matrixSize><x>32</x><y>32</y><z>1</z></matrixSize></reconSpace>
<encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{last}</maximum><center>{centre}</center>
</kspace_encoding_step_1></encodingLimits></encoding></ismrmrdHeader>"""
# Columns of k-space, side of the target: as wide as usual, odd, and wider than k-space.
SHAPES = [(40, 32), (41, 31), (21, 32)]


def random(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal((2, *shape)).astype(np.float32)
    return values[0] + 1j * values[1]


def write(file, columns, side, coils=3, header=None, **attributes):
    """One file of one slice; the target is any image: what it is cropped to counts."""
    kspace = random(1, coils, 64, columns)
    target = np.abs(random(1, side, side, seed=1)) + 0.1
    with h5py.File(file, "w") as opened:
        opened["kspace"], opened["reconstruction_rss"] = kspace.astype(np.complex64), target
        if header is not None:
            opened["ismrmrd_header"] = header
        opened.attrs.update({"max": float(target.max()), **attributes})
    return kspace[0], target[0]


def dataset_of(folder, mask, accelerations=(4, 8), shares=(0.08, 0.04)):
    degradation = {"mask": mask, "accelerations": [*accelerations], "center_fractions": [*shares]}
    return build_dataset(
        config_from_dict(
            {
                "model": {"net_type": "swinir"},
                "data": {"val_dir": str(folder), "normalisation": "none", "degradation": degradation},
            }
        ),
        "val",
    )


def centre_crop(image, side):
    """fastMRI's: from (n - side) // 2."""
    top, left = (image.shape[-2] - side) // 2, (image.shape[-1] - side) // 2
    return image[..., top : top + side, left : left + side]


@pytest.mark.parametrize(("columns", "side"), SHAPES)
def test_a_slice_is_that_of_the_published_formulas(tmp_path, columns, side):
    """sqrt(sum of |crop(F^-1(M k))|^2 over the coils), centred orthonormal transforms; the square is the smaller."""
    kspace, target = write(tmp_path / "file1000000.h5", columns, side)
    dataset = dataset_of(tmp_path, "fastmri_random")
    sample, (_, mask) = dataset[0], dataset.degraded(0)
    axes = (-2, -1)
    images = np.fft.ifft2(np.fft.ifftshift(kspace * mask, axes=axes), axes=axes, norm="ortho")
    side = min(side, columns)
    expected = np.sqrt((np.abs(centre_crop(np.fft.fftshift(images, axes=axes), side)) ** 2).sum(0))
    np.testing.assert_allclose(sample["input"][0], expected, atol=1e-5)
    np.testing.assert_allclose(sample["target"][0], centre_crop(target, side), atol=1e-6)


CLASSES = {
    "fastmri_random": "RandomMaskFunc",
    "fastmri_equispaced": "EquiSpacedMaskFunc",
    "fastmri_equispaced_fraction": "EquispacedMaskFractionFunc",
    "fastmri_magic": "MagicMaskFunc",
    "fastmri_magic_fraction": "MagicMaskFractionFunc",
}


@pytest.mark.parametrize(("columns", "side"), SHAPES)
@pytest.mark.parametrize("kind", FASTMRI_MASKS)
def test_a_slice_is_that_of_the_package(tmp_path, kind, columns, side):
    transforms = pytest.importorskip("fastmri.data.transforms")
    masks = pytest.importorskip("fastmri.data.subsample")
    kspace, target = write(tmp_path / "file1000007.h5", columns, side)
    theirs = transforms.UnetDataTransform("multicoil", getattr(masks, CLASSES[kind])([0.12, 0.08], [3, 4]))
    sample = theirs(kspace.astype(np.complex64), None, target, {"max": 1.0}, "file1000007.h5", 0)
    ours = dataset_of(tmp_path, kind, (3, 4), (0.12, 0.08))[0]
    # Theirs has a mean of 0 and a deviation of 1, clamped to 6 deviations.
    scaled = {key: ((ours[key][0] - sample.mean) / sample.std).clamp(-6, 6) for key in ("input", "target")}
    np.testing.assert_allclose(scaled["input"], sample.image, atol=1e-4)
    np.testing.assert_allclose(scaled["target"], sample.target, atol=1e-4)


def test_padding_of_the_header_is_that_of_the_package(tmp_path):
    """VarNet's masks leave the scanner's zeros out; where they are is in the header."""
    transforms = pytest.importorskip("fastmri.data.transforms")
    data = pytest.importorskip("fastmri.data")
    masks = pytest.importorskip("fastmri.data.subsample")
    write(tmp_path / "file1.h5", 40, 32, header=HEADER.format(encoded=40, last=29, centre=15))
    theirs = data.SliceDataset(
        tmp_path,
        "multicoil",
        transform=transforms.VarNetDataTransform(masks.RandomMaskFunc([0.08], [4])),
    )[0]
    dataset = dataset_of(tmp_path, "fastmri_random", [4], [0.08])
    mask = dataset.degraded(0)[1]
    np.testing.assert_array_equal(mask[0], theirs.mask.numpy().reshape(-1))


@pytest.mark.parametrize(
    ("header", "attributes", "measured"),
    [
        # 40 // 2 - 15 = 5, 5 + 29 + 1 = 35.
        (HEADER.format(encoded=40, last=29, centre=15), {}, (5, 35)),
        (None, {"padding_left": 2, "padding_right": 39}, (2, 39)),
        (HEADER.format(encoded=40, last=39, centre=20), {}, None),  # all columns were measured
        (HEADER.format(encoded=30, last=29, centre=20), {}, (0, 25)),  # 15 - 20 is before the first column
        ("<no XML", {}, None),
        ("<ismrmrdHeader/>", {}, None),
        (None, {"padding_left": "x", "padding_right": 3}, None),
        (None, {}, None),
    ],
)
def test_where_the_scanner_measured(tmp_path, header, attributes, measured):
    write(tmp_path / "file1.h5", 40, 32, header=header, **attributes)
    (volume,) = open_fastmri(tmp_path / "file1.h5", "file1.h5")
    assert volume.measured_columns == measured


def test_columns_of_the_scanners_zeros_are_not_sampled():
    mask = padded_columns_left_out(np.ones((2, 6), dtype=bool), (1, 4))
    assert mask.tolist() == [[False, True, True, True, False, False]] * 2
    assert padded_columns_left_out(np.ones((2, 6), dtype=bool), None).all()


def test_a_centre_that_leaves_nothing_names_the_file(tmp_path):
    """round(21 / 8) = 3 columns in all, and round(21 x 0.12) = 3 of them are the centre."""
    write(tmp_path / "file1.h5", 21, 16)
    with pytest.raises(
        DataError, match=r"file1\.h5: fastmri_magic_fraction: 3 central of 21 lines leave none"
    ):
        dataset_of(tmp_path, "fastmri_magic_fraction", [8], [0.12])[0]
