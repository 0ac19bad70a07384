"""Hard data consistency on every kind of data: what was measured is in the result, and nothing else moves."""

import numpy as np
import pytest
import torch

from swinmr_profiling.configs.sections.data import DegradationSection
from swinmr_profiling.training.data.dataset import ReconstructionDataset
from swinmr_profiling.training.data.fastmri_files import open_fastmri
from swinmr_profiling.training.data.npy_files import open_npy
from swinmr_profiling.training.data.phantom import PhantomVolume
from swinmr_profiling.training.degradation.acquisition import DegradedSlice
from swinmr_profiling.training.degradation.data_consistency import consistent
from swinmr_profiling.training.degradation.kspace import fft2c

HALF = DegradationSection(mask="random1d", sampled_fraction=0.5, center_fraction=0.1)


@pytest.fixture
def fastmri_volume(tmp_path):
    import h5py

    rng = np.random.default_rng(0)

    def write(coils, image_hw=(16, 16)):
        shape = (1, coils, 20, 18)
        kspace = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
        file = tmp_path / f"{coils}.h5"
        with h5py.File(file, "w") as opened:
            opened["kspace"] = kspace
            opened["reconstruction_rss"] = np.ones((1, *image_hw), np.float32)
        return open_fastmri(file, file.name)[0]

    return write


def dataset_of(volume, channels=1):
    return ReconstructionDataset([volume], HALF, training=False, channels=channels, normalisation="max")


def magnitude_volume(tmp_path):
    file = tmp_path / "volume.npy"
    np.save(file, np.random.default_rng(1).random((1, 16, 16), np.float32))
    return open_npy(file, "volume.npy")[0]


def check(dataset, output, wanted, magnitude_only=False):
    degraded, mask = dataset.degraded(0)
    result = consistent(output, degraded, mask, magnitude_only=magnitude_only)
    torch.testing.assert_close(result, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("coils", [1, 3])
def test_measured_data_keeps_its_zero_filled_image(fastmri_volume, coils):
    """The zero-filled image agrees with what was measured, also where the image is a crop, so nothing changes."""
    dataset = dataset_of(fastmri_volume(coils))
    zero_filled = dataset[0]["input"]
    check(dataset, zero_filled, zero_filled[0])


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("coils", [1, 4])
def test_a_perfect_complex_image_stays_perfect(coils, channels):
    dataset = dataset_of(PhantomVolume("phantom", 1, (32, 32), 1, coils=coils), channels)
    sample = dataset[0]
    if channels == 2:
        magnitude = torch.linalg.vector_norm(sample["target"], dim=0)
        check(dataset, sample["target"], magnitude)
        return
    # A magnitude has no phase: with the zero-filled one's it comes close, closer than without the measurement.
    degraded, mask = dataset.degraded(0)
    poor = sample["target"] + 0.1
    better = consistent(poor, degraded, mask, magnitude_only=False)
    assert (better - sample["target"][0]).square().mean() < (poor - sample["target"]).square().mean()


def test_a_perfect_image_of_coils_with_sensitivities_in_the_file_stays_perfect(tmp_path):
    """K-space larger than the image, sensitivities of any size: what is measured is what the maps make of it."""
    import h5py

    rng = np.random.default_rng(3)
    image = rng.standard_normal((20, 18)) + 1j * rng.standard_normal((20, 18))
    maps = rng.standard_normal((3, 20, 18)) + 1j * rng.standard_normal((3, 20, 18))
    unit = maps / np.sqrt((np.abs(maps) ** 2).sum(0))
    axes = (-2, -1)
    shifted = np.fft.ifftshift(unit * image, axes=axes)
    kspace = np.fft.fftshift(np.fft.fft2(shifted, axes=axes, norm="ortho"), axes=axes)
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        opened["kspace"] = kspace[None].astype(np.complex64)
        opened["sens_maps"] = maps[None].astype(np.complex64)
        opened["reconstruction_rss"] = np.abs(image[None, 2:18, 1:17]).astype(np.float32)
    dataset = dataset_of(open_fastmri(tmp_path / "a.h5", "a.h5")[0], channels=2)
    assert dataset.without_sensitivities is None
    sample = dataset[0]
    scale = np.abs(image[2:18, 1:17]).max()
    wanted = torch.from_numpy(np.abs(image[2:18, 1:17]) / scale).float()
    torch.testing.assert_close(
        torch.linalg.vector_norm(sample["target"], dim=0), wanted, atol=1e-5, rtol=1e-4
    )
    degraded, mask = dataset.degraded(0)
    # Outside of the crop the zero-filled image is kept, which the whole perfect image would replace: all is sampled.
    everything = np.ones_like(mask)
    full = DegradedSlice(
        degraded.zero_filled,
        degraded.target,
        0.0,
        degraded.scale,
        torch.from_numpy(kspace.astype(np.complex64)) / degraded.scale,
        degraded.coil_maps,
    )
    result = consistent(sample["target"], full, everything, magnitude_only=False)
    torch.testing.assert_close(result, wanted, atol=1e-5, rtol=1e-4)


def test_coils_without_sensitivities_are_known(fastmri_volume):
    assert dataset_of(fastmri_volume(3)).without_sensitivities == "3.h5"
    assert dataset_of(fastmri_volume(1)).without_sensitivities is None
    assert dataset_of(PhantomVolume("phantom", 1, (32, 32), 1, coils=4)).without_sensitivities is None


def test_magnitude_data(tmp_path):
    dataset = dataset_of(magnitude_volume(tmp_path))
    sample = dataset[0]
    check(dataset, sample["target"], sample["target"][0], magnitude_only=True)
    degraded, mask = dataset.degraded(0)
    # Zeros everywhere leave the measured samples alone: the zero-filled image.
    check(dataset, torch.zeros(1, 16, 16), sample["input"][0], magnitude_only=True)
    # An error in what was measured goes, an error elsewhere stays.
    spoiled = degraded.target + 0.3 * torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    result = consistent(spoiled[None].float(), degraded, mask, magnitude_only=True)
    before, after = ((fft2c(x) - fft2c(degraded.target)).abs().square().sum() for x in (spoiled, result))
    assert after < 0.7 * before
