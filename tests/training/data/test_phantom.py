"""The phantom against its table, scikit-image's copy, and what varies by slice."""

import numpy as np
import pytest
import skimage.data

from swinmr_profiling.training.data.phantom import (
    PHASE_LIMIT,
    PhantomVolume,
    coil_sensitivities,
    shepp_logan,
    smooth_phase,
)


def test_the_phantom_of_the_table_at_known_places():
    """1 in the skull; 1 - 0.8 in the brain; one ellipse less in the ventricles; 0 outside."""
    image = shepp_logan((401, 401))

    def at(x, y):
        return image[round(200 - 200.5 * y), round(200 + 200.5 * x)]

    assert at(0, -0.9) == pytest.approx(1.0)
    assert at(-0.5, 0.0) == pytest.approx(0.2)
    assert at(0.22, 0.0) == pytest.approx(0.0)
    assert at(0, 0.35) == pytest.approx(0.3)
    assert at(0.9, 0.9) == 0
    assert image.max() == pytest.approx(1.0)


def test_the_phantom_is_scikit_images_picture_of_it_but_for_edges():
    """That picture's edges are blurred; its outline, its place and its greys are ours."""
    picture = skimage.data.shepp_logan_phantom()
    image = shepp_logan(picture.shape)
    for axis in (0, 1):
        extents = [np.flatnonzero((x > 0.05).any(axis))[[0, -1]].tolist() for x in (image, picture)]
        assert extents[0] == extents[1]
    agreement = {
        shift: np.corrcoef(image.ravel(), np.roll(picture, shift, (0, 1)).ravel())[0, 1]
        for shift in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
    }
    assert max(agreement, key=agreement.get) == (0, 0)
    assert np.mean(np.abs(image - picture) < 0.02) > 0.93


def test_slices_differ_and_are_the_same_every_time():
    volume = PhantomVolume("phantom", 4, (48, 40), coils=1, seed=1)
    images = [volume.read(i).image for i in range(4)]
    assert all(image.shape == (48, 40) and image.dtype == np.complex64 for image in images)
    for i in range(4):
        assert np.array_equal(images[i], PhantomVolume("other", 4, (48, 40), coils=1, seed=1).read(i).image)
        others = [images[j] for j in range(4) if j != i]
        others += [PhantomVolume("v", 4, (48, 40), coils=1, seed=2).read(j).image for j in range(4)]
        assert all(np.abs(np.abs(images[i]) - np.abs(other)).mean() > 0.005 for other in others)


def test_the_head_stays_inside_the_field_of_view():
    for seed in range(50):
        image = shepp_logan((64, 64), np.random.default_rng(seed))
        assert 0.8 < image.max() <= 1.0 + 1e-6
        assert image[0].max() == image[-1].max() == image[:, 0].max() == image[:, -1].max() == 0


def test_phase_is_smooth_and_limited():
    phase = smooth_phase((64, 64), np.random.default_rng(0))
    assert np.abs(phase).max() <= PHASE_LIMIT
    assert np.abs(np.diff(phase, axis=0)).max() < 0.15
    assert phase.std() > 0.05


@pytest.mark.parametrize("coils", [1, 2, 8])
def test_coil_maps_are_smooth_different_and_have_unit_sum_of_squares(coils):
    maps = coil_sensitivities(coils, (32, 40))
    np.testing.assert_allclose((np.abs(maps) ** 2).sum(0), 1, rtol=1e-5)
    assert np.abs(np.diff(maps, axis=1)).max() < 0.2
    assert all(np.abs(maps[0] - other).max() > 0.1 for other in maps[1:])
