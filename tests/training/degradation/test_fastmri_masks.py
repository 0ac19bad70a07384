"""fastMRI's masks: what the package fastmri 0.3.0 drew for these files, and its formulas counted by hand."""

import numpy as np
import pytest

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.configs.sections.data import DegradationSection
from swinmr_profiling.training.degradation.fastmri_masks import FASTMRI_MASKS, centre, fastmri_mask, seed_of

# Kind, accelerations, centre fractions, name of the file, and the columns that
# fastmri.data.subsample's class gave for its shape (1, 10, columns, 2) with seed tuple(map(ord, name)).
DRAWN = [
    ("fastmri_random", [4], [0.08], "file1000000.h5",
     "000010000110001111000001100011001"),
    ("fastmri_random", [4, 8], [0.08, 0.04], "file1000007.h5",
     "000000001010101111000010000000000"),
    ("fastmri_random", [4, 8], [0.08, 0.04], "file_brain_AXFLAIR_203.h5",
     "1000001001000000000000010000101111110000000000100000000000000100"),
    ("fastmri_random", [3], [0.15], "file1.h5",
     "000000100111010000000"),
    ("fastmri_equispaced", [4], [0.08], "file1000000.h5",
     "010001000100010111000100010001000"),
    ("fastmri_equispaced", [4, 8], [0.08, 0.04], "file1000007.h5",
     "100010001000100111001000100010001"),
    ("fastmri_equispaced", [4, 8], [0.08, 0.04], "file_brain_AXFLAIR_203.h5",
     "0100010001000100010001000100011111100100010001000100010001000100"),
    ("fastmri_equispaced", [3], [0.15], "file1.h5",
     "001001001111001001001"),
    ("fastmri_equispaced_fraction", [4], [0.08], "file1000000.h5",
     "010000010000100111100000100000100"),
    ("fastmri_equispaced_fraction", [4, 8], [0.08, 0.04], "file1000007.h5",
     "000010000010000111000100000100000"),
    ("fastmri_equispaced_fraction", [4, 8], [0.08, 0.04], "file_brain_AXFLAIR_203.h5",
     "0010000100000100001000010000011111100000100001000010000010000100"),
    ("fastmri_equispaced_fraction", [3], [0.15], "file1.h5",
     "000100001111100010000"),
    ("fastmri_magic", [4], [0.08], "file1000000.h5",
     "000100010001000111010001000100010"),
    ("fastmri_magic", [4, 8], [0.08, 0.04], "file1000007.h5",
     "010001000100010111000100010001000"),
    ("fastmri_magic", [4, 8], [0.08, 0.04], "file_brain_AXFLAIR_203.h5",
     "0001000100010001000100010001001111110001000100010001000100010001"),
    ("fastmri_magic", [3], [0.15], "file1.h5",
     "001001000111010010010"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "accelerations", "shares", "name", "columns"), DRAWN)
def test_masks_are_fastmris_seed_for_seed(kind, accelerations, shares, name, columns):
    state = np.random.RandomState(seed_of(f"folder/{name}"))
    mask = fastmri_mask(kind, (10, len(columns)), accelerations, shares, state)
    assert mask.shape == (10, len(columns))
    assert (mask == mask[0]).all()
    assert "".join(str(int(value)) for value in mask[0]) == columns


CLASSES = {
    "fastmri_random": "RandomMaskFunc",
    "fastmri_equispaced": "EquiSpacedMaskFunc",
    "fastmri_equispaced_fraction": "EquispacedMaskFractionFunc",
    "fastmri_magic": "MagicMaskFunc",
    "fastmri_magic_fraction": "MagicMaskFractionFunc",
}


@pytest.mark.parametrize("kind", FASTMRI_MASKS)
@pytest.mark.parametrize("columns", [32, 33, 213, 320, 321, 368, 372])
def test_masks_equal_the_package(kind, columns):
    subsample = pytest.importorskip("fastmri.data.subsample")
    theirs = getattr(subsample, CLASSES[kind])([0.08, 0.04], [4, 8])
    for index in range(20):
        seed = seed_of(f"file{index}.h5")
        mask, _ = theirs((1, 10, columns, 2), seed=seed)
        ours = fastmri_mask(kind, (10, columns), [4, 8], [0.08, 0.04], np.random.RandomState(seed))
        np.testing.assert_array_equal(ours[0], mask.numpy().reshape(-1) > 0)


def test_central_lines_at_odd_and_even_widths():
    """pad = (columns - count + 1) // 2: of 33 columns 3 from 15, of 32 columns 3 from 15, of 33 columns 4 from 15."""
    assert [centre(33, 3), centre(32, 3), centre(33, 4)] == [slice(15, 18)] * 2 + [slice(15, 19)]


def test_several_accelerations_are_mixed_evenly():
    """A file is sampled at 4-fold with 26 central lines of 320, or at 8-fold with 13."""
    shares = []
    for index in range(400):
        state = np.random.RandomState(seed_of(f"file{index}.h5"))
        shares.append(
            fastmri_mask("fastmri_equispaced_fraction", (1, 320), [4, 8], [0.08, 0.04], state).mean()
        )
    fast = np.array(shares) < 0.19
    assert 0.42 < fast.mean() < 0.58  # 400 draws: a deviation is 0.025
    assert np.mean(np.array(shares)[~fast]) == pytest.approx(1 / 4, abs=0.005)
    assert np.mean(np.array(shares)[fast]) == pytest.approx(1 / 8, abs=0.005)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accelerations": [4, 8]}, "2 accelerations, but 1 center_fractions"),
        ({"sampled_fraction": 0.3}, "takes accelerations and center_fractions: drop it"),
        ({"center_fractions": [0.25]}, "0.25 alone is all of 1 / 4 or more: at most"),
    ],
)
def test_what_does_not_fit_together_is_refused(options, words):
    degradation = {"mask": "fastmri_random", **options}
    with pytest.raises(ConfigError, match=words):
        config_from_dict({"model": {"net_type": "swinir"}, "data": {"degradation": degradation}})


def test_the_nominal_share_is_the_mean_of_the_accelerations():
    mixed = DegradationSection(mask="fastmri_magic", accelerations=[4, 8], center_fractions=[0.08, 0.04])
    assert mixed.nominal_fraction == pytest.approx((1 / 4 + 1 / 8) / 2)


def test_a_centre_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match="4 central of 4 lines leave none"):
        fastmri_mask("fastmri_random", (4, 4), [1], [1.0], np.random.RandomState(0))
