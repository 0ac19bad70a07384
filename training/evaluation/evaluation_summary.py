"""From what was measured to what is reported: means beside the baseline's, gains, and intervals over volumes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from swinmr_profiling.training.denoising.diffusion_reconstruction import DiffusionSampler
from swinmr_profiling.training.evaluation.bootstrap import volume_interval
from swinmr_profiling.training.evaluation.evaluation import IMAGE_METRICS, SAMPLED_ERROR, Evaluation, Measured
from swinmr_profiling.training.run.run_log import finite_or_none
from swinmr_profiling.training.validation.metrics import DEFINITIONS

DATA_RANGES = {
    "volume": "maximum of the ground truth of the whole volume",
    "slice": "maximum of the ground truth of the slice",
}
Value = Callable[[Measured], float]


def summarise_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """The `metrics` block of a summary: `volume` and `slice`, each with PSNR in dB, SSIM and NMSE.

    Every metric has `reconstruction`, `zero_filled` and `gain` (their difference; positive is better for PSNR and
    SSIM, negative for NMSE), each with `mean`, `interval_95` (None with fewer than 2 volumes) and `count`.
    """
    return {
        "volume": _convention("volume", evaluation.volumes),
        "slice": _convention("slice", evaluation.slices),
    }


def _convention(name: str, units: Sequence[Measured]) -> dict[str, Any]:
    return {
        "definition": DEFINITIONS[name],
        "data_range": DATA_RANGES[name],
        "units": f"{name}s",
        "count": len(units),
        **{metric: compare(units, metric) for metric in IMAGE_METRICS},
    }


def compare(units: Sequence[Measured], metric: str) -> dict[str, Any]:
    """One metric of reconstruction and zero-filled input, and their difference, over slices or volumes.

    Each is the mean over the units in which it is defined (not in those with an empty target, nor the PSNR of
    equal images); `count` says how many those are.
    """
    values: dict[str, Value] = {
        "reconstruction": lambda unit: unit.reconstruction.get(metric, math.nan),
        "zero_filled": lambda unit: unit.zero_filled.get(metric, math.nan),
        "gain": lambda unit: (
            unit.reconstruction.get(metric, math.nan) - unit.zero_filled.get(metric, math.nan)
        ),
    }
    return {name: _mean_and_interval(units, value) for name, value in values.items()}


def _mean_and_interval(units: Sequence[Measured], value: Value) -> dict[str, Any]:
    by_volume: dict[str, list[float]] = {}
    for unit in units:
        found = value(unit)
        if math.isfinite(found):
            by_volume.setdefault(unit.volume, []).append(found)
    sums = [sum(values) for values in by_volume.values()]
    counts = [len(values) for values in by_volume.values()]
    interval = volume_interval(sums, counts)
    return {
        "mean": sum(sums) / sum(counts) if counts else None,
        "interval_95": None if interval is None else list(interval),
        "count": sum(counts),
    }


def volume_table(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The `volumes` block of a summary: every volume's own figures, by fastMRI's definition."""
    return [
        {
            "volume": volume.volume,
            "slices": volume.slices,
            "image_size": list(volume.image_hw),
            "data_range": finite_or_none(volume.data_range),
            "sampled_fraction": volume.sampled_fraction,
            **{
                source: {name: finite_or_none(value) for name, value in getattr(volume, source).items()}
                for source in ("reconstruction", "zero_filled")
            },
        }
        for volume in evaluation.volumes
    ]


def sampled_fractions(evaluation: Evaluation) -> dict[str, float] | None:
    """Share of k-space that the masks really sampled, over slices."""
    shares = [one.sampled_fraction for one in evaluation.slices]
    if not shares:
        return None
    return {"mean": sum(shares) / len(shares), "min": min(shares), "max": max(shares)}


def summarise_sampling(sampler: DiffusionSampler | None, evaluation: Evaluation) -> dict[str, Any] | None:
    """The `sampling` block of a summary: how a denoiser's images were sampled and how far samples are apart.

    `sampled_kspace_error` is that of the reconstruction and of the zero-filled image. `pixel_std` and
    `sample_psnr_db` are None with one sample a slice; of the latter, `mean` is over all samples, `std` the deviation
    among the samples of a slice (n - 1), mean over slices.
    """
    if sampler is None:
        return None
    spreads = [one.spread for one in evaluation.slices if one.spread is not None]
    block: dict[str, Any] = {
        **sampler.describe(),
        "reconstruction": "mean of the samples" if sampler.samples > 1 else "the sample",
        SAMPLED_ERROR: {
            "definition": "|M (F x - k0)| / |M k0|, mean over slices",
            **compare(evaluation.slices, SAMPLED_ERROR),
        },
        "pixel_std": None,
        "sample_psnr_db": None,
    }
    finite = [spread for spread in spreads if all(map(math.isfinite, (spread.pixel_std, *spread.psnr_db)))]
    if finite:
        everything = [value for spread in finite for value in spread.psnr_db]
        block["pixel_std"] = {
            "definition": "deviation over samples, mean over pixels and slices, share of the slice's maximum",
            "mean": statistics.fmean(spread.pixel_std for spread in finite),
            "count": len(finite),
        }
        block["sample_psnr_db"] = {
            "mean": statistics.fmean(everything),
            "std": statistics.fmean(statistics.stdev(spread.psnr_db) for spread in finite),
            "count": len(everything),
        }
    return block
