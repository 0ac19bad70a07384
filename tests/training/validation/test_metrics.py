"""Metrics against hand calculation and scikit-image, and the gap between the two conventions."""

import math

import numpy as np
import pytest
import skimage.metrics
import torch

from swinmr_profiling.training.step.ssim import ssim as torch_ssim
from swinmr_profiling.training.validation.metrics import (
    DEFINITIONS,
    MetricAccumulator,
    nmse,
    psnr,
    ssim,
    summarise,
)


def noisy_volume(seed=0, slices=4, side=40):
    """Slices of falling brightness, as those of a head from the middle to the top."""
    rng = np.random.default_rng(seed)
    bright = np.linspace(1.0, 0.2, slices)[:, None, None]
    smooth = np.add.outer(np.sin(np.arange(side) / 5), np.cos(np.arange(side) / 7)) / 4 + 0.5
    target = (bright * smooth).astype(np.float32)
    return target, (target + 0.03 * rng.standard_normal(target.shape)).astype(np.float32)


def test_nmse_and_psnr_by_hand():
    target, output = np.array([[3.0, 4.0]]), np.array([[3.0, 2.0]])
    assert nmse(target, output) == pytest.approx(4 / 25)
    # MSE 4 / 2, range 4: 20 log10 4 - 10 log10 2 = 12.0412 - 3.0103.
    assert psnr(target, output) == pytest.approx(9.0309, abs=1e-4)
    assert psnr(target, output, data_range=1.0) == pytest.approx(-3.0103, abs=1e-4)


def test_all_metrics_equal_scikit_image_at_the_same_definition():
    target, output = noisy_volume()
    top = float(target.max())
    assert psnr(target, output) == pytest.approx(
        skimage.metrics.peak_signal_noise_ratio(target, output, data_range=top), rel=1e-6
    )
    expected = np.mean(
        [
            skimage.metrics.structural_similarity(x, y, data_range=top)
            for x, y in zip(target.astype(np.float64), output.astype(np.float64), strict=True)
        ]
    )
    assert ssim(target, output) == pytest.approx(expected, abs=1e-9)
    root = skimage.metrics.normalized_root_mse(target, output, normalization="euclidean")
    assert nmse(target, output) == pytest.approx(root**2, rel=1e-5)


def test_ssim_by_hand_where_one_window_fits():
    """7 x 7 pixels: one window. Target 1 and output 2 everywhere, range 1: the variances are 0.

    (2 x 1 x 2 + 1e-4) / (1 + 4 + 1e-4) = 0.800004.
    """
    ones = np.ones((7, 7))
    assert ssim(ones, 2 * ones) == pytest.approx(4.0001 / 5.0001, rel=1e-9)
    # One pixel 49 in a field of 0: mean 1, sample variance 49 x 49 / 48 - 49 / 48 = 49; against itself 1.
    point = np.zeros((7, 7))
    point[3, 3] = 49
    assert ssim(point, point) == pytest.approx(1.0)
    # Against half of it, range 49: c1 = 0.2401, c2 = 2.1609.
    luminance = (2 * 1 * 0.5 + 0.2401) / (1 + 0.25 + 0.2401)
    structure = (2 * 24.5 + 2.1609) / (49 + 12.25 + 2.1609)
    assert ssim(point, point / 2) == pytest.approx(luminance * structure, rel=1e-9)


def test_ssim_has_a_gradient_and_refuses_images_below_a_window():
    x = torch.rand(1, 1, 9, 9, dtype=torch.float64, requires_grad=True)
    y = torch.rand(1, 1, 9, 9, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: torch_ssim(x, y, 1.0), (x,))
    with pytest.raises(ValueError, match="at least 7 x 7, not 6 x 9"):
        torch_ssim(y[..., :6, :], y[..., :6, :], 1.0)


def test_the_same_images_differ_by_4_db_and_more_between_conventions():
    """The trap: a dark slice with its own maximum as the range has a far lower PSNR than its volume.

    Equal errors in every slice: the volume's PSNR has one range, 1.0 of the brightest; slices have ranges that
    fall to a fifth of it, so the mean of 20 log10(range) is the exact gap.
    """
    target, _ = noisy_volume(slices=8)
    error = 0.02 * np.where(np.indices(target.shape[1:]).sum(0) % 2, 1, -1)
    output = target + error
    both = {}
    for convention in ("volume", "slice"):
        metrics = MetricAccumulator(convention, {"head": 8})
        for x, y in zip(output, target, strict=True):
            metrics.add("head", x, y)
        both[convention] = metrics.result()
    tops = target.max((1, 2)).astype(np.float64)
    gap = 20 * math.log10(tops.max()) - np.mean(20 * np.log10(tops))
    assert gap > 4
    assert both["volume"].psnr_db - both["slice"].psnr_db == pytest.approx(gap, abs=1e-4)
    assert abs(both["volume"].ssim - both["slice"].ssim) > 0.02
    assert (both["volume"].units, both["slice"].units) == (1, 8)
    assert both["volume"].definition == DEFINITIONS["volume"] != both["slice"].definition


def test_ssim_without_the_range_of_the_data_is_another_number():
    """What goes wrong elsewhere: a range of 2 for floats in 0..1, or of 255."""
    target, output = noisy_volume()
    assert ssim(target, output, data_range=2.0) - ssim(target, output) > 0.05


def test_volumes_may_come_interleaved_and_are_let_go_when_full():
    first, first_out = noisy_volume(0, slices=3)
    second, second_out = noisy_volume(1, slices=2)
    metrics = MetricAccumulator("volume", {"a": 3, "b": 2})
    order = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    for name, i in order:
        target, output = (first, first_out) if name == "a" else (second, second_out)
        metrics.add(name, output[i], target[i])
    assert metrics._open == {}
    result = metrics.result()
    assert result.psnr_db == pytest.approx((psnr(first, first_out) + psnr(second, second_out)) / 2, rel=1e-6)
    assert result.nmse == pytest.approx((nmse(first, first_out) + nmse(second, second_out)) / 2, rel=1e-6)
    with pytest.raises(ValueError, match="b: has more slices than announced"):
        metrics.add("b", second_out[0], second[0])


def test_an_interrupted_volume_counts_as_it_is_and_ranks_add_up():
    target, output = noisy_volume()
    metrics = MetricAccumulator("volume", {"a": 4})
    for i in range(2):
        metrics.add("a", output[i], target[i])
    assert metrics.result().psnr_db == pytest.approx(psnr(target[:2], output[:2]), rel=1e-6)
    ranks = [[{"psnr": 30.0, "ssim": 0.9, "nmse": 0.1}], [{"psnr": 34.0, "ssim": 0.7, "nmse": 0.3}]]
    together = summarise(ranks[0] + ranks[1], "volume")
    assert (together.psnr_db, together.ssim, together.nmse) == pytest.approx((32.0, 0.8, 0.2))


def test_what_is_undefined_is_none_and_counted_never_nan():
    empty = np.zeros((8, 8), dtype=np.float32)
    full = np.ones((8, 8), dtype=np.float32)
    metrics = MetricAccumulator("slice", {})
    metrics.add("a", full, empty)
    assert (metrics.result().psnr_db, metrics.result().ssim, metrics.result().nmse) == (None, None, None)
    metrics.add("a", full, full)  # equal: an infinite PSNR, but SSIM 1 and NMSE 0
    assert (metrics.result().psnr_db, metrics.result().ssim, metrics.result().nmse) == (None, 1.0, 0.0)
    metrics.add("a", 0.5 * full, full)  # MSE 0.25: 6.0206 dB
    assert metrics.result().psnr_db == pytest.approx(6.0206, abs=1e-4)
    assert (metrics.result().units, metrics.result().undefined) == (3, 2)
