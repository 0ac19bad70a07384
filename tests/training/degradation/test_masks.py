"""Masks: the share they sample over a thousand draws, and the geometry each pattern promises."""

import itertools

import numpy as np
import pytest
import scipy.ndimage

from swinmr_profiling.training.degradation.masks import LINE_MASKS, PLANE_MASKS, central_lines, draw_mask
from swinmr_profiling.training.degradation.plane_masks import GOLDEN_ANGLE, _disc_growth
from swinmr_profiling.training.degradation.random_choice import round_at_random, weighted_choice

KINDS = [*LINE_MASKS, *PLANE_MASKS]
DRAWS = 1000


def draws(kind, shape_hw, fraction, count, seed=0, **options):
    rng = np.random.default_rng(seed)
    return (draw_mask(kind, shape_hw, fraction, rng, **options) for _ in range(count))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape_hw", "fraction"), [((64, 64), 0.25), ((40, 56), 0.1)])
def test_the_sampled_share_over_a_thousand_draws_is_the_nominal_one(kind, shape_hw, fraction):
    shares = [mask.mean() for mask in draws(kind, shape_hw, fraction, DRAWS)]
    assert np.mean(shares) == pytest.approx(fraction, abs=0.01)
    # No single draw is far off either: at most two lines, for patterns of points half a percent.
    worst = 2 / shape_hw[1] if kind in LINE_MASKS else 0.015
    assert np.abs(np.array(shares) - fraction).max() <= worst


@pytest.mark.parametrize("kind", LINE_MASKS)
@pytest.mark.parametrize(("fraction", "centre"), [(1 / 4, 0.08), (1 / 8, 0.04), (0.3, 0.3), (0.9, 0.0)])
def test_lines_at_the_accelerations_of_fastmri(kind, fraction, centre):
    shares = [m.mean() for m in draws(kind, (8, 320), fraction, DRAWS, center_fraction=centre)]
    assert np.mean(shares) == pytest.approx(fraction, abs=0.002)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_decides_a_mask_and_another_seed_another(kind):
    first, second = draws(kind, (48, 48), 0.3, 2)
    (again,) = draws(kind, (48, 48), 0.3, 1)
    assert first.dtype == bool
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    # The zero frequency is always sampled: without it the image has no mean.
    assert all(mask[24, 24] for mask in draws(kind, (48, 48), 0.1, 50))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape_hw", [(33, 47), (16, 128)])
def test_odd_and_long_shapes_and_full_sampling(kind, shape_hw):
    (mask,) = draws(kind, shape_hw, 0.3, 1)
    assert mask.shape == shape_hw
    assert mask[shape_hw[0] // 2, shape_hw[1] // 2]
    assert all(m.all() for m in draws(kind, shape_hw, 1.0, 1))


def test_lines_are_whole_columns_and_the_centre_is_full():
    for kind in LINE_MASKS:
        (mask,) = draws(kind, (20, 100), 0.25, 1, center_fraction=0.08)
        assert (mask == mask[0]).all()
        # 8 of 100 lines around line 50: 46 to 53.
        assert mask[0, 46:54].all()
    assert central_lines(100, 0.08, 0.25) == slice(46, 54)
    # The zero frequency is line 4 of 8 and of 9 (fftshift): it lies in the middle, or right of it.
    assert central_lines(8, 0.375, 0.5) == slice(3, 6)
    assert central_lines(8, 0.25, 0.5) == slice(3, 5)
    assert central_lines(9, 1 / 3, 0.5) == slice(3, 6)
    assert central_lines(9, 0.2, 0.5) == slice(3, 5)
    # 7 of 64 lines are asked for, but a share of 0.1 has room for 6 only.
    assert central_lines(64, 0.11, 0.1) == slice(29, 35)


def test_equispaced_lines_have_the_adjusted_spacing():
    """N = 256, R = 4, Nc = round(20.48) = 20: R' = 4 (20 - 256) / (20 x 4 - 256) = 5.364."""
    for mask in draws("equispaced1d", (1, 256), 0.25, 50):
        sampled = np.flatnonzero(mask[0])
        left = sampled[sampled < 118]
        assert set(np.diff(left)) <= {5, 6}
        # Four equal cycles of 5.364 and more fit: the mean gap is that to within one line over the run.
        assert np.diff(left).mean() == pytest.approx(5.364, abs=1 / (len(left) - 1))


def test_random_lines_have_the_probability_of_fastmri():
    """p = (N / R - Nc) / (N - Nc) = (25 - 8) / (100 - 8) = 0.1848, for every outer line alike."""
    counts = sum(m[0].astype(int) for m in draws("random1d", (1, 100), 0.25, 4000))
    outer = np.delete(counts, slice(46, 54)) / 4000
    # Deviation of a line's frequency: sqrt(p (1 - p) / 4000) = 0.0061; 92 lines stay within 4.5 of them.
    assert outer.mean() == pytest.approx(17 / 92, abs=1e-3)
    assert np.abs(outer - 17 / 92).max() < 4.5 * 0.0061


# Of SwinMR's mask files, 256 x 256: share sampled by distance from the zero frequency, counted from the files.
RINGS = {
    "gaussian1d": [0, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 129],
    "gaussian2d": [0, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 182],
}
OFFICIAL = {
    ("gaussian1d", 0.2): [1.0, 1.0, 1.0, 0.75, 0.688, 0.188, 0.125, 0.094, 0.031, 0.062, 0.062, 0.091],
    ("gaussian1d", 0.3): [1.0, 1.0, 1.0, 0.812, 0.688, 0.312, 0.156, 0.125, 0.156, 0.156, 0.188, 0.182],
    ("gaussian1d", 0.4): [1.0, 1.0, 1.0, 1.0, 0.625, 0.5, 0.438, 0.25, 0.344, 0.312, 0.156, 0.242],
    ("gaussian1d", 0.5): [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.531, 0.375, 0.281, 0.344, 0.375, 0.333],
    ("gaussian2d", 0.2): [1.0, 1.0, 0.893, 0.652, 0.552, 0.411, 0.281, 0.208, 0.159, 0.143, 0.133, 0.127, 0.125, 0.122],
    ("gaussian2d", 0.3): [1.0, 1.0, 1.0, 0.802, 0.67, 0.512, 0.385, 0.299, 0.263, 0.235, 0.233, 0.226, 0.218, 0.227],
    ("gaussian2d", 0.4): [1.0, 1.0, 1.0, 0.996, 0.745, 0.608, 0.477, 0.408, 0.368, 0.336, 0.327, 0.324, 0.334, 0.314],
    ("gaussian2d", 0.5): [1.0, 1.0, 1.0, 1.0, 0.944, 0.716, 0.589, 0.515, 0.463, 0.434, 0.425, 0.427, 0.422, 0.421],
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "fraction"), OFFICIAL)
def test_gaussian_masks_are_distributed_as_swinmrs_files(kind, fraction):
    """Every ring within 0.03 over 200 seeds. A single Gaussian has 0.014 in the corners at 30 %, the file 0.227."""
    sampled = sum(
        draw_mask(kind, (256, 256), fraction, np.random.default_rng(seed)).astype(int) for seed in range(200)
    )
    y, x = np.indices((256, 256)) - 128
    distance = np.abs(x) if kind == "gaussian1d" else np.hypot(y, x)
    edges = RINGS[kind]
    shares = [sampled[(distance >= a) & (distance < b)].mean() / 200 for a, b in itertools.pairwise(edges)]
    assert shares == pytest.approx(OFFICIAL[kind, fraction], abs=0.03)


def test_gaussian_lines_have_a_full_run_in_the_middle():
    """Of 256 at 30 % the lines nearer than 13, whatever center_fraction; at 50 % those nearer than 24."""
    for fraction, reach in ((0.3, 13), (0.5, 24)):
        for mask in draws("gaussian1d", (1, 256), fraction, 20, center_fraction=0.0):
            assert mask[0, 128 - reach + 1 : 128 + reach].all()
        (mask,) = draws("gaussian1d", (1, 256), fraction, 1, center_fraction=0.25)
        assert mask[0, 96:160].all()


def test_gaussian_masks_of_another_size_have_the_same_shape():
    """Distances count relative to each side: the outer half of the columns of an oblong has the file's share."""
    mean = np.mean(list(draws("gaussian2d", (64, 512), 0.3, 40)), axis=0)
    inner = mean[24:40, 192:320].mean()
    assert inner == pytest.approx(
        np.mean(list(draws("gaussian2d", (256, 256), 0.3, 10)), axis=0)[96:160, 96:160].mean(), abs=0.03
    )
    assert mean[:, :32].mean() == pytest.approx(0.23, abs=0.02)


@pytest.mark.parametrize("kind", ["radial", "spiral"])
def test_trajectories_are_one_piece_and_denser_inside(kind):
    y, x = np.indices((96, 96)) - 48
    distance = np.hypot(y, x)
    for mask in draws(kind, (96, 96), 0.25, 20):
        # Beyond the inscribed circle a spiral is arcs in four corners; well inside it is one line.
        pieces, _ = scipy.ndimage.label(mask & (distance < 47), structure=np.ones((3, 3)))
        assert set(pieces[mask & (distance < 40)]) == {pieces[48, 48]}
        assert mask[distance < 4].mean() > 0.75
        assert mask[distance < 16].mean() > 1.5 * mask[(distance > 32) & (distance < 48)].mean()


def test_radial_spokes_are_golden_angles_apart():
    """At 5 % of 128 x 128, 819 points: every one lies within a pixel's half diagonal of a spoke."""
    (mask,) = draws("radial", (128, 128), 0.05, 1, seed=7)
    rng = np.random.default_rng(7)
    rng.random()  # the count is rounded first
    angles = rng.uniform(0, np.pi) + GOLDEN_ANGLE * np.arange(10)
    y, x = np.nonzero(mask)
    off = np.abs(np.outer(np.cos(angles), y - 64) - np.outer(np.sin(angles), x - 64)).min(axis=0)
    assert off.max() <= np.sqrt(0.5) + 1e-9


def test_poisson_points_keep_their_distance():
    """By brute force: no pair is closer than the smaller radius; and gaps are filled (nothing more fits)."""
    (mask,) = draws("poisson2d", (48, 48), 0.15, 1)
    growth = _disc_growth((48, 48), 0.15)
    points = np.argwhere(mask)
    radius = growth * np.hypot(*((points - 24) / 24).T)
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    np.fill_diagonal(distance, np.inf)
    assert (distance >= np.minimum(radius[:, None], radius[None])).all()
    assert growth > 3  # the outer discs are several pixels wide: the test above says something
    free = np.argwhere(~mask)
    to_points = np.hypot(*(free[:, None] - points[None]).transpose(2, 0, 1))
    assert (to_points < radius[None]).any(axis=1).all()
    # Near the centre, where radii are below a pixel, everything is sampled.
    assert mask[np.hypot(*(np.indices((48, 48)) - 24)) * growth / 24 < 0.5].all()


def test_rounding_and_choosing_are_without_bias():
    rng = np.random.default_rng(0)
    rounded = [round_at_random(2.3, rng) for _ in range(20_000)]
    assert set(rounded) == {2, 3}
    assert np.mean(rounded) == pytest.approx(2.3, abs=0.013)  # 4 deviations of sqrt(.21 / 20000)
    # Of weights 1, 2, 3 two are drawn: the first is left out with 2/6 x 3/4 + 3/6 x 2/3 = 0.5833.
    first = np.mean([0 in weighted_choice(np.array([1.0, 2.0, 3.0]), 2, rng) for _ in range(20_000)])
    assert first == pytest.approx(1 - 0.58333, abs=0.014)
    assert 1 not in weighted_choice(np.array([1.0, 0.0, 3.0]), 2, rng)
    assert len(weighted_choice(np.ones(3), 0, rng)) == 0


def test_less_than_a_line_is_the_central_line():
    for kind in LINE_MASKS:
        for mask in draws(kind, (4, 16), 0.001, 20):
            assert mask.any()
        (mask,) = draws(kind, (4, 16), 1e-9, 1)
        assert np.flatnonzero(mask[0]).tolist() == [8]


def test_a_wrong_name_or_share_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="mask 'cartesian' is not one of random1d"):
        draw_mask("cartesian", (8, 8), 0.5, rng)
    with pytest.raises(ValueError, match="sampled fraction 0 is not above 0"):
        draw_mask("random1d", (8, 8), 0, rng)
