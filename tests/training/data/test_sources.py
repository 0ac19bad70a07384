"""Every format is read back from a file written here; what cannot be used is refused in one line that names it."""

import h5py
import nibabel
import numpy as np
import PIL.Image
import pydicom
import pytest
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.training.data.sources import open_folder
from swinmr_profiling.training.errors import DataError


def random(*shape, seed=0):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def write_fastmri(file, kspace, **datasets):
    with h5py.File(file, "w") as opened:
        opened["kspace"] = kspace
        for name, value in datasets.items():
            opened[name] = value


def write_dicom(file, pixels, series, instance, **tags):
    dataset = pydicom.Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = MRImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = generate_uid()
    dataset.SeriesInstanceUID, dataset.InstanceNumber = series, instance
    dataset.Rows, dataset.Columns = pixels.shape[-2:]
    if pixels.ndim == 3:
        dataset.NumberOfFrames = len(pixels)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation = 15, 0
    dataset.PixelData = pixels.astype("<u2").tobytes()
    for tag, value in tags.items():
        setattr(dataset, tag, value)
    dataset.save_as(file, enforce_file_format=True)


def read_all(volume):
    return np.stack([volume.read(i).image for i in range(volume.slices)])


def test_fastmri_with_coils_and_a_cropped_target(tmp_path):
    kspace = (random(2, 3, 12, 10) + 1j * random(2, 3, 12, 10, seed=1)).astype(np.complex64)
    target = random(2, 8, 8, seed=2)
    write_fastmri(tmp_path / "scan.h5", kspace, reconstruction_rss=target)
    (volume,) = open_folder(tmp_path, "auto", "data.train_dir")
    assert (volume.name, volume.slices) == ("scan.h5", 2)
    assert (volume.image_hw, volume.kspace_hw) == ((8, 8), (12, 10))
    assert not volume.kspace_simulated
    raw = volume.read(1)
    np.testing.assert_array_equal(raw.kspace, kspace[1])
    np.testing.assert_array_equal(raw.image, target[1])


def test_fastmri_of_one_coil_without_a_target_is_reconstructed(tmp_path):
    kspace = (random(2, 7, 6) + 1j * random(2, 7, 6, seed=1)).astype(np.complex64)
    write_fastmri(tmp_path / "scan.h5", kspace)
    (volume,) = open_folder(tmp_path, "fastmri", "data.train_dir")
    raw = volume.read(0)
    assert raw.kspace.shape == (1, 7, 6)
    expected = np.abs(np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace[0]), norm="ortho")))
    np.testing.assert_allclose(raw.image, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.complex64])
def test_npy_with_and_without_slices(tmp_path, dtype):
    array = (100 * random(3, 5, 5)).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array[0])
    first, second = open_folder(tmp_path, "auto", "data.train_dir")
    np.testing.assert_array_equal(read_all(first), array)
    np.testing.assert_array_equal(read_all(second), array[:1])
    assert first.magnitude_only == (dtype != np.complex64)
    assert first.kspace_simulated


def npy_of(folder, array, layout="auto"):
    np.save(folder / "a.npy", array)
    (volume,) = open_folder(folder, "npy", "data.train_dir", layout)
    return volume


@pytest.mark.parametrize(
    ("shape", "image_hw", "slices"),
    [
        ((9, 8), (9, 8), 1),
        ((9, 8, 1), (9, 8), 1),
        ((1, 9, 8), (9, 8), 1),
        ((3, 8, 8), (8, 8), 3),
        ((8, 8, 3), (8, 8), 3),
    ],
)
def test_npy_in_a_layout_that_has_one_reading(tmp_path, shape, image_hw, slices):
    array = random(*shape)
    volume = npy_of(tmp_path, array)
    assert (volume.image_hw, volume.slices) == (image_hw, slices)
    last = array if array.ndim == 2 else array[..., -1] if shape[:2] == image_hw else array[-1]
    np.testing.assert_array_equal(volume.read(slices - 1).image, last)


@pytest.mark.parametrize("shape", [(8, 8, 8), (6, 9, 8), (1, 9, 1)])
def test_npy_of_two_readings_is_refused_with_both(tmp_path, shape):
    a, b, c = shape
    with pytest.raises(DataError) as caught:
        npy_of(tmp_path, random(*shape))
    assert f"(slices, H, W) = {a} slices of {b} x {c}, or (H, W, slices) = {c} slices of {a} x {b}?" in str(
        caught.value
    )
    assert npy_of(tmp_path, random(*shape), "slices_first").image_hw == (b, c)
    assert npy_of(tmp_path, random(*shape), "slices_last").image_hw == (a, b)


def test_npy_of_colours_is_asked_about(tmp_path):
    colours = (255 * random(8, 8, 3)).astype(np.uint8)
    with pytest.raises(DataError, match="colours, or "):
        npy_of(tmp_path, colours)


@pytest.mark.parametrize("shape", [(8, 8, 2), (2, 8, 8)])
def test_npy_of_real_and_imaginary_part_is_asked_about(tmp_path, shape):
    """Two planes of magnitudes are two slices; with values below 0 they may be the parts of one complex image."""
    assert npy_of(tmp_path, random(*shape)).slices == 2
    with pytest.raises(
        DataError, match=r"real and imaginary part \(save them as one complex array\), or \(slices"
    ):
        npy_of(tmp_path, random(*shape) - 0.5)
    assert npy_of(tmp_path, random(*shape) - 0.5, "slices_first").slices == shape[0]


def disc(side=64):
    y, x = np.indices((side, side)) - side // 2
    return (np.hypot(y, x) < side // 3).astype(np.float64)


def transformed(image):
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image), norm="ortho"))


@pytest.mark.parametrize("uncentred", [False, True])
@pytest.mark.parametrize("slices", [None, 2])
def test_npy_of_kspace_is_no_image(tmp_path, uncentred, slices):
    kspace = transformed(disc() * np.exp(0.3j))
    kspace = np.fft.ifftshift(kspace) if uncentred else kspace
    with pytest.raises(DataError, match=r'is complex and is k-space .* set data.layout to "kspace"'):
        npy_of(tmp_path, kspace if slices is None else np.stack([kspace] * slices))


def test_npy_of_complex_images_stays_images(tmp_path):
    image = disc() * np.exp(1j * np.indices((64, 64))[0] / 20)
    volume = npy_of(tmp_path, image)
    assert volume.kspace_simulated
    np.testing.assert_allclose(volume.read(0).image, image, atol=1e-6)


@pytest.mark.parametrize("coils", [None, 3])
def test_npy_of_kspace_that_is_declared(tmp_path, coils):
    """The target is the root sum of squares of the inverse transform: of one coil its magnitude."""
    kspace = np.stack([transformed(disc() * (1 + slice_)) for slice_ in range(2)])
    if coils:
        kspace = np.stack([kspace * (1 + coil) for coil in range(coils)], axis=1)
    volume = npy_of(tmp_path, kspace, "coil_kspace" if coils else "kspace")
    assert (volume.slices, volume.image_hw, volume.kspace_simulated) == (2, (64, 64), False)
    raw = volume.read(1)
    assert raw.kspace.shape == (coils or 1, 64, 64)
    np.testing.assert_allclose(raw.image, 2 * disc() * (14**0.5 if coils else 1), atol=1e-5)
    assert (volume.coils, volume.has_coil_maps) == (coils or 1, False)


def test_a_layout_that_the_file_does_not_have(tmp_path):
    with pytest.raises(DataError, match=r"expected \(slices, coils, H, W\)"):
        npy_of(tmp_path, random(4, 4, 4) + 0j, "coil_kspace")
    with pytest.raises(DataError, match="holds float32, and k-space"):
        npy_of(tmp_path, random(4, 4), "kspace")
    with pytest.raises(DataError, match=r'measured k-space of coils: data\.layout "coil_kspace"'):
        npy_of(tmp_path, random(2, 2, 4, 4) + 0j)


def test_a_layout_is_of_npy_alone():
    raw = {
        "model": {"net_type": "swinir"},
        "data": {"source": "png", "train_dir": "x", "layout": "slices_last"},
    }
    with pytest.raises(ConfigError, match=r'data\.layout: is of \.npy files, but source is "png"'):
        config_from_dict(raw)


def test_swinmrs_sensitivities_beside_its_images_are_none(tmp_path):
    np.save(tmp_path / "imgGT_1_1.npy", random(8, 8))
    np.save(tmp_path / "SensitivityMaps_1_1.npy", random(8, 8, 4, 2))
    (volume,) = open_folder(tmp_path, "auto", "data.train_dir")
    assert volume.name == "imgGT_1_1.npy"


@pytest.mark.parametrize(("representation", "bits", "highest"), [(0, 12, 4095), (1, 16, -1)])
def test_monochrome1_is_shown_inverted_and_read_bright_is_high(tmp_path, representation, bits, highest):
    """Its lowest value is white: of 12 unsigned bits v is 4095 - v, of 16 signed ones -1 - v; then the rescaling."""
    pixels = np.random.default_rng(0).integers(0, 4000, (6, 5))
    tags = {"BitsStored": bits, "HighBit": bits - 1, "PixelRepresentation": representation}
    tags |= {"PhotometricInterpretation": "MONOCHROME1", "RescaleSlope": 2, "RescaleIntercept": 7}
    write_dicom(tmp_path / "a.dcm", pixels, generate_uid(), 1, **tags)
    (volume,) = open_folder(tmp_path, "auto", "data.train_dir")
    np.testing.assert_array_equal(volume.read(0).image, 2 * (highest - pixels) + 7)


def test_a_target_wider_than_kspace_shrinks_as_fastmris_does(tmp_path):
    """FLAIR_203: k-space 640 x 213, target 320 x 320. fastMRI crops both to a square as wide as k-space."""
    kspace = (random(1, 2, 64, 21) + 1j * random(1, 2, 64, 21, seed=1)).astype(np.complex64)
    target = random(1, 32, 32, seed=2)
    write_fastmri(tmp_path / "file_brain_AXFLAIR_203.h5", kspace, reconstruction_rss=target)
    write_fastmri(tmp_path / "other.h5", kspace, reconstruction_rss=target[:, :20, :20])
    odd, other = open_folder(tmp_path, "fastmri", "d")
    assert (odd.image_hw, odd.kspace_hw, odd.coils) == ((21, 21), (64, 21), 2)
    # fastMRI's center_crop: from (32 - 21) // 2 = 5.
    np.testing.assert_array_equal(odd.read(0).image, target[0, 5:26, 5:26])
    assert other.image_hw == (20, 20)


def test_sensitivities_of_a_file_are_read_and_normalised(tmp_path):
    kspace = (random(2, 3, 8, 8) + 1j * random(2, 3, 8, 8, seed=1)).astype(np.complex64)
    maps = (random(2, 3, 8, 8, seed=3) + 1j * random(2, 3, 8, 8, seed=4)).astype(np.complex64)
    maps[:, :, 0] = 0  # as ESPIRiT leaves the background
    write_fastmri(tmp_path / "a.h5", kspace, sensitivity_maps=maps)
    (volume,) = open_folder(tmp_path, "auto", "d")
    read = volume.read(1).coil_maps
    assert volume.has_coil_maps
    np.testing.assert_allclose((np.abs(read[:, 1:]) ** 2).sum(0), 1, atol=1e-6)
    assert (read[:, 0] == 0).all()
    np.testing.assert_allclose(
        read[0, 1] * np.abs(maps[1, 1, 1]), np.abs(read[1, 1]) * maps[1, 0, 1], atol=1e-5
    )
    (tmp_path / "a.h5").unlink()
    write_fastmri(tmp_path / "a.h5", kspace, sens_maps=maps[:, :2])
    with pytest.raises(DataError, match=r"sens_maps has the shape \(2, 2, 8, 8\), kspace \(2, 3, 8, 8\)"):
        open_folder(tmp_path, "auto", "d")


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_nifti_with_times_and_a_scale(tmp_path, ending):
    array = np.random.default_rng(0).integers(0, 1000, (6, 5, 3, 2)).astype(np.int16)
    image = nibabel.Nifti1Image(array, np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / f"head{ending}")
    nibabel.save(nibabel.Nifti1Image(array[..., 0, 0], np.eye(4)), tmp_path / f"one{ending}")
    head, one = open_folder(tmp_path, "auto", "data.train_dir")
    assert (head.slices, head.image_hw) == (6, (6, 5))
    # All positions of the first time, then all of the second; stored values x 0.5 + 10.
    assert head.read(4).image[2, 3] == pytest.approx(array[2, 3, 1, 1] * 0.5 + 10)
    expected = np.moveaxis(array, (3, 2), (0, 1)).reshape(6, 6, 5) * 0.5 + 10
    np.testing.assert_allclose(read_all(head), expected, rtol=1e-6)
    np.testing.assert_array_equal(read_all(one)[0], array[..., 0, 0])


def test_dicom_series_in_the_order_of_their_instances_and_without_endings(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 4000, (4, 6, 5))
    series = generate_uid()
    for instance, name in ((3, "a.dcm"), (1, "1.2.840.7"), (2, "c")):
        write_dicom(tmp_path / name, pixels[instance], series, instance, RescaleSlope=2, RescaleIntercept=-1)
    frames = pixels[:3, :, :4]
    write_dicom(tmp_path / "z.dcm", frames, generate_uid(), 1)
    (tmp_path / "notes").write_text("no image")
    (tmp_path / "DICOMDIR.txt").write_text("no image")
    first, second = open_folder(tmp_path, "auto", "data.train_dir")
    assert first.name == "1.2.840.7"
    np.testing.assert_array_equal(read_all(first), pixels[1:] * 2.0 - 1)
    np.testing.assert_array_equal(read_all(second), frames)


def test_png_of_8_and_16_bits_and_colour(tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (6, 5), dtype=np.uint8)
    deep = np.random.default_rng(1).integers(0, 65536, (6, 5), dtype=np.uint16)
    (tmp_path / "sub").mkdir()
    PIL.Image.fromarray(grey).save(tmp_path / "a.png")
    PIL.Image.fromarray(deep).save(tmp_path / "b.png")
    PIL.Image.fromarray(np.repeat(grey[..., None], 3, axis=2)).save(tmp_path / "sub" / "c.png")
    (tmp_path / ".hidden.png").write_text("no image")
    volumes = open_folder(tmp_path, "auto", "data.train_dir")
    assert [volume.name for volume in volumes] == ["a.png", "b.png", "sub/c.png"]
    for volume, expected in zip(volumes, (grey, deep, grey), strict=True):
        assert volume.image_hw == (6, 5)
        np.testing.assert_array_equal(read_all(volume)[0], expected)


def config(**data):
    return config_from_dict({"model": {"net_type": "swinir", "img_size": [24, 40]}, "data": data})
