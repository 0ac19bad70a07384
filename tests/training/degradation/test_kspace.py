"""The transform against numpy.fft and by hand, coils, noise, data consistency."""

import numpy as np
import pytest
import torch

from swinmr_profiling.training.degradation.kspace import (
    centre_crop,
    combine_coils,
    complex_noise,
    fft2c,
    hard_data_consistency,
    ifft2c,
    root_sum_of_squares,
)


def random_complex(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


@pytest.mark.parametrize("shape_hw", [(8, 8), (7, 5), (6, 9)])
def test_the_transform_equals_numpy_slice_by_slice(shape_hw):
    """Also for odd sides, where fftshift and ifftshift differ, and whatever the leading axes."""
    image = random_complex(2, 3, *shape_hw)
    kspace = fft2c(torch.from_numpy(image)).numpy()
    for batch in range(2):
        for coil in range(3):
            expected = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image[batch, coil]), norm="ortho"))
            np.testing.assert_allclose(kspace[batch, coil], expected, atol=1e-5)
    np.testing.assert_allclose(ifft2c(torch.from_numpy(kspace)).numpy(), image, atol=1e-5)


def test_the_mean_of_the_image_is_the_centre_of_kspace():
    """Orthonormal: a constant 3 on 4 x 6 points gives 3 x 24 / sqrt(24) at [2, 3], 0 elsewhere."""
    kspace = fft2c(torch.full((4, 6), 3.0))
    expected = torch.zeros(4, 6, dtype=torch.complex64)
    expected[2, 3] = 3 * 24**0.5
    torch.testing.assert_close(kspace, expected, atol=1e-5, rtol=0)


def test_a_point_in_the_centre_has_constant_kspace_and_energy_is_kept():
    image = torch.zeros(6, 8)
    image[3, 4] = 2.0
    # 2 / sqrt(48) everywhere, without a phase ramp.
    expected = torch.full((6, 8), 2 / 48**0.5, dtype=torch.complex64)
    torch.testing.assert_close(fft2c(image), expected, atol=1e-6, rtol=0)
    x = torch.from_numpy(random_complex(5, 7))
    assert float(fft2c(x).abs().square().sum()) == pytest.approx(float(x.abs().square().sum()), rel=1e-5)


def test_root_sum_of_squares_by_hand():
    coils = torch.tensor([[[3.0 + 0j]], [[0 + 4j]]])  # (2, 1, 1): sqrt(9 + 16)
    assert root_sum_of_squares(coils).item() == pytest.approx(5.0)


def test_combining_coils_gives_back_the_object_and_zero_where_nothing_is_sensitive():
    truth = torch.from_numpy(random_complex(4, 4))
    maps = torch.from_numpy(random_complex(3, 4, 4, seed=1))
    maps[:, 0, 0] = 0
    combined = combine_coils(maps * truth, maps)
    assert combined[0, 0] == 0
    combined[0, 0] = truth[0, 0]
    torch.testing.assert_close(combined, truth, atol=1e-5, rtol=1e-4)


def test_noise_has_the_named_deviation_over_both_parts_together():
    noise = complex_noise((4, 100, 100), 0.5, np.random.default_rng(0))
    assert noise.dtype == torch.complex64
    # 40,000 samples: |n|^2 / std^2 has mean 1 and deviation 1, so the mean is known to 0.5 %.
    assert float(noise.abs().square().mean()) == pytest.approx(0.25, rel=0.02)
    assert float(noise.real.var()) == pytest.approx(0.125, rel=0.03)
    again = complex_noise((4, 100, 100), 0.5, np.random.default_rng(0))
    assert torch.equal(noise, again)


def test_data_consistency_by_hand():
    kspace = torch.tensor([[1 + 1j, 2 + 0j]])
    measured = torch.tensor([[3 + 0j, 0j]])
    mask = torch.tensor([[True, False]])
    assert hard_data_consistency(kspace, measured, mask).tolist() == [[3 + 0j, 2 + 0j]]


def test_centre_crop_by_hand():
    image = torch.arange(20).reshape(4, 5)
    # Rows 1 and 2; columns 1 to 3 of 5.
    assert centre_crop(image, (2, 3)).tolist() == [[6, 7, 8], [11, 12, 13]]
    with pytest.raises(ValueError, match="cannot crop 4 x 5 to 5 x 5"):
        centre_crop(image, (5, 5))
