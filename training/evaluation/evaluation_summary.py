"""From what was measured to what is reported: means beside the baseline's, gains, intervals, and the files of it.

Intervals say how far a mean would move with other volumes: the percentile bootstrap (Efron 1979), volumes drawn whole.
Slices of one volume are alike, so they are never drawn singly: that would promise a precision that is not there.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swinmr_profiling.configs.writing.atomic_files import table_text, write_text
from swinmr_profiling.training.denoising.diffusion_reconstruction import DiffusionSampler
from swinmr_profiling.training.evaluation.evaluation import IMAGE_METRICS, SAMPLED_ERROR, Evaluation, Measured
from swinmr_profiling.training.run.run_log import finite_or_none
from swinmr_profiling.training.validation.metrics import DEFINITIONS

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 0
# With fewer volumes percentile intervals are known to be too narrow (Efron and Tibshirani 1993, chapter 14).
FEW_VOLUMES = 20
BLOCK = 1000


def volume_interval(
    sums: Sequence[float], counts: Sequence[int], resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """95 % interval of sum(sums) / sum(counts) over volumes drawn with replacement.

    Args:
        sums: per volume, the sum of its units' values (its slices', or its own one value).
        counts: per volume, how many units those are; volumes without any are left out.
        resamples, seed: number of draws, and what makes them repeatable.

    Returns:
        (low, high), or None with fewer than 2 volumes.
    """
    kept = [(total, count) for total, count in zip(sums, counts, strict=True) if count]
    if len(kept) < 2:
        return None
    totals, units = np.array(kept, dtype=np.float64).T
    rng = np.random.default_rng(seed)
    means = []
    # In blocks: all draws of thousands of volumes at once would not fit into memory.
    for first in range(0, resamples, BLOCK):
        draws = min(BLOCK, resamples - first)
        drawn = rng.multinomial(len(kept), np.full(len(kept), 1 / len(kept)), size=draws)
        means.append(drawn @ totals / (drawn @ units))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return float(low), float(high)


def bootstrap_block(volumes: int, *more_notes: str) -> dict[str, object]:
    """The `bootstrap` block of a summary: how intervals were made, and what they do not say."""
    notes = ["spread between volumes of this test set only: not between training runs, scanners or masks"]
    notes += more_notes
    if volumes < 2:
        notes.append(f"{volumes} volume: an interval over volumes needs at least 2, so it is null")
    elif volumes < FEW_VOLUMES:
        notes.append(f"{volumes} volumes: with fewer than {FEW_VOLUMES} such intervals are too narrow")
    return {
        "confidence": CONFIDENCE,
        "method": "percentile bootstrap, whole volumes drawn with replacement; differences are paired by volume",
        "resamples": RESAMPLES,
        "seed": SEED,
        "volumes": volumes,
        "notes": notes,
    }


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
        "reconstruction": "mean of the samples" if sampler.section.samples_per_slice > 1 else "the sample",
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


# Of several samples a slice: the deviation of pixels as a share of the maximum, PSNR of the samples alone.
SPREAD_COLUMNS = ["samples", "pixel_std", "sample_psnr_db_mean", "sample_psnr_db_std"]
SLICES_NAME, SUMMARY_NAME, PICTURES_NAME = "slices.csv", "summary.json", "pictures.png"


def write_slices(slices: Sequence[Measured], file: Path, perceptual: str | None) -> None:
    """One line a slice, by the slice convention; empty where a value is not defined. Raises OSError.

    perceptual: "lpips" or "st_lpips" for a column of it.
    """
    metrics = [*IMAGE_METRICS, *([] if perceptual is None else [perceptual])]
    header = ["volume", "slice", "height", "width", "sampled_fraction", "data_range"]
    header += [name for metric in metrics for name in (metric, f"zero_filled_{metric}")]
    with_spread = any(one.spread is not None for one in slices)
    header += SPREAD_COLUMNS if with_spread else []
    rows = []
    for one in slices:
        row: list[Any] = [one.volume, one.slice, *one.image_hw, one.sampled_fraction, one.data_range]
        for metric in metrics:
            row += [
                finite_or_none(values.get(metric, float("nan")))
                for values in (one.reconstruction, one.zero_filled)
            ]
        rows.append(row + (_spread(one) if with_spread else []))
    write_text(file, table_text(header, rows))


def _spread(one: Measured) -> list[Any]:
    if one.spread is None:
        return [None] * len(SPREAD_COLUMNS)
    psnr_db = one.spread.psnr_db
    deviation = statistics.stdev(psnr_db) if all(map(math.isfinite, psnr_db)) else math.nan
    figures = (one.spread.pixel_std, statistics.fmean(psnr_db), deviation)
    return [one.spread.samples, *map(finite_or_none, figures)]


def write_summary(summary: dict[str, Any], file: Path) -> None:
    """The summary as JSON. Raises OSError, and ValueError for a NaN or an infinity, which JSON does not have."""
    write_text(file, json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
