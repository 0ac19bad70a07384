"""From what was measured to what is reported: means beside the baseline's, gains, and intervals over volumes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from training.bootstrap import volume_interval
from training.evaluation import IMAGE_METRICS, Evaluation, Measured
from training.metrics import DEFINITIONS
from training.run_log import finite_or_none

DATA_RANGES = {
    "volume": "maximum of the ground truth of the whole volume",
    "slice": "maximum of the ground truth of the slice",
}
Value = Callable[[Measured], float]


def summarise_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """The `metrics` block of a summary: `volume` and `slice`, each with PSNR in dB, SSIM and NMSE.

    Every metric has `reconstruction`, `zero_filled` and `gain` (their difference; positive is better for PSNR and
    SSIM, negative for NMSE), each with `mean` and `interval_95` (None with fewer than 2 volumes).
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
    """One metric of reconstruction and zero-filled input over slices or volumes.

    Units whose value is not defined (an empty target, equal images) are left out of all three and counted.
    """
    defined = [
        unit
        for unit in units
        if math.isfinite(unit.reconstruction.get(metric, math.nan))
        and math.isfinite(unit.zero_filled.get(metric, math.nan))
    ]
    values: dict[str, Value] = {
        "reconstruction": lambda unit: unit.reconstruction[metric],
        "zero_filled": lambda unit: unit.zero_filled[metric],
        "gain": lambda unit: unit.reconstruction[metric] - unit.zero_filled[metric],
    }
    block: dict[str, Any] = {name: _mean_and_interval(defined, value) for name, value in values.items()}
    block["undefined"] = len(units) - len(defined)
    return block


def _mean_and_interval(units: Sequence[Measured], value: Value) -> dict[str, Any]:
    by_volume: dict[str, list[float]] = {}
    for unit in units:
        by_volume.setdefault(unit.volume, []).append(value(unit))
    sums = [sum(values) for values in by_volume.values()]
    counts = [len(values) for values in by_volume.values()]
    if not units:
        return {"mean": None, "interval_95": None}
    interval = volume_interval(sums, counts)
    return {
        "mean": sum(sums) / sum(counts),
        "interval_95": None if interval is None else list(interval),
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
