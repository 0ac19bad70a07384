"""What an evaluation writes: a table of slices (CSV), the summary (JSON), pictures (PNG)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.writing.atomic_files import table_text, write_text
from swinmr_profiling.training.evaluation.evaluation import IMAGE_METRICS, Measured
from swinmr_profiling.training.run.run_log import finite_or_none

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
