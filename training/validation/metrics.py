"""NMSE, PSNR and SSIM by fastMRI's volume-wise definition, and slice by slice as SwinMR-style code reports.

The two conventions differ by several dB for the same images, so every result carries its DEFINITIONS entry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from swinmr_profiling.training.step.ssim import ssim as torch_ssim

Convention = Literal["volume", "slice"]
DEFINITIONS: dict[str, str] = {
    "volume": (
        "fastMRI: NMSE = |gt - x|^2 / |gt|^2, PSNR = 20 log10(max gt) - 10 log10(MSE) and SSIM (mean over slices; "
        "uniform 7 x 7, k1 0.01, k2 0.03, sample covariance), each over a volume with the volume's maximum as the "
        "range; then the mean over volumes"
    ),
    "slice": (
        "each slice on its own with its own maximum as the range: NMSE = |gt - x|^2 / |gt|^2, PSNR = "
        "20 log10(max gt) - 10 log10(MSE), SSIM (uniform 7 x 7, k1 0.01, k2 0.03, sample covariance); then the "
        "mean over slices"
    ),
}
METRICS = ("psnr", "ssim", "nmse")


def nmse(target: np.ndarray, output: np.ndarray) -> float:
    """|target - output|^2 / |target|^2 over all axes. NaN for a target of zeros alone."""
    difference = _squares(target.astype(np.float64) - output)
    energy = _squares(target.astype(np.float64))
    return difference / energy if energy else math.nan


def _squares(x: np.ndarray) -> float:
    return float(np.vdot(x, x).real)


def psnr(target: np.ndarray, output: np.ndarray, data_range: float | None = None) -> float:
    """20 log10(range) - 10 log10(MSE) over all axes, in dB; the range is the target's maximum unless given.

    Infinite for equal arrays, NaN for a range that is not positive.
    """
    top = float(target.max()) if data_range is None else data_range
    error = _squares(target.astype(np.float64) - output) / target.size
    if top <= 0:
        return math.nan
    return math.inf if error == 0 else 20 * math.log10(top) - 10 * math.log10(error)


def ssim(target: np.ndarray, output: np.ndarray, data_range: float | None = None) -> float:
    """Mean SSIM over slices (slices, H, W) or of one image (H, W); the range is the maximum of all unless given.

    Uniform 7 x 7 windows inside the image, k1 0.01, k2 0.03, sample covariance, in float64. NaN for a range that
    is not positive.
    """
    top = float(target.max()) if data_range is None else data_range
    if top <= 0:
        return math.nan
    pair = [
        torch.from_numpy(np.asarray(x, np.float64)).reshape(-1, 1, *x.shape[-2:]) for x in (output, target)
    ]
    return float(torch_ssim(pair[0], pair[1], top))


@dataclass(frozen=True)
class MetricResult:
    """Means of the metrics, and what they are means of.

    Attributes:
        psnr_db, ssim, nmse: None where nothing was finite (empty targets, equal images).
        convention, definition: how they were computed.
        units: volumes or slices that were averaged.
        undefined: units that were left out, because their target is empty or equal to the output.
    """

    psnr_db: float | None
    ssim: float | None
    nmse: float | None
    convention: Convention
    definition: str
    units: int
    undefined: int


class MetricAccumulator:
    """Collects slices in any order and averages. Holds the slices of open volumes only, in float32.

    Values must be in one scale within a volume: undo the per-slice normalisation first.
    """

    def __init__(self, convention: Convention, slices_per_volume: Mapping[str, int]) -> None:
        """slices_per_volume: how many slices each volume has, so that a full one is computed and let go."""
        self.convention = convention
        self._expected = dict(slices_per_volume)
        self._open: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.values: list[dict[str, float]] = []

    def add(self, volume: str, output: np.ndarray, target: np.ndarray) -> None:
        """One slice (H, W) of magnitudes.

        By volume it raises KeyError for one that was not announced, ValueError for one with too many slices.
        """
        if self.convention == "slice":
            self.values.append(_metrics_of(target, output))
            return
        members = self._open.setdefault(volume, [])
        if self._expected[volume] <= 0:
            raise ValueError(f"{volume}: has more slices than announced")
        members.append((np.array(output, dtype=np.float32), np.array(target, dtype=np.float32)))
        self._expected[volume] -= 1
        if self._expected[volume] == 0:
            self._close(volume)

    def _close(self, volume: str) -> None:
        outputs, targets = zip(*self._open.pop(volume), strict=True)
        self.values.append(_metrics_of(np.stack(targets), np.stack(outputs)))

    def result(self) -> MetricResult:
        """The means so far; volumes that are not full (an interrupted evaluation) count as they are."""
        for volume in list(self._open):
            self._close(volume)
        return summarise(self.values, self.convention)


def _metrics_of(target: np.ndarray, output: np.ndarray) -> dict[str, float]:
    return {"psnr": psnr(target, output), "ssim": ssim(target, output), "nmse": nmse(target, output)}


def summarise(values: list[dict[str, float]], convention: Convention) -> MetricResult:
    """The means of units' metrics, such as those of several ranks together."""

    def mean(name: str) -> float | None:
        finite = [unit[name] for unit in values if math.isfinite(unit[name])]
        return sum(finite) / len(finite) if finite else None

    undefined = sum(not all(math.isfinite(unit[name]) for name in METRICS) for unit in values)
    return MetricResult(
        psnr_db=mean("psnr"),
        ssim=mean("ssim"),
        nmse=mean("nmse"),
        convention=convention,
        definition=DEFINITIONS[convention],
        units=len(values),
        undefined=undefined,
    )
