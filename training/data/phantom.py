"""The built-in source: a Shepp-Logan phantom that varies by slice, with phase and coil sensitivities."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from swinmr_profiling.training.volumes import RawSlice, Volume

# Shepp and Logan 1974 with Toft's contrast (1996): value, half axes a and b, centre x and y, angle in degrees.
# Coordinates are -1 to 1 from edge to edge, y upwards.
ELLIPSES = (
    (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
)
# How far a slice's ellipses leave the table: half axes and values relatively, places absolutely, turns in degrees.
AXIS_JITTER, VALUE_JITTER, PLACE_JITTER, ANGLE_JITTER = 0.08, 0.15, 0.02, 6.0
# Whole-head variation, so that edges do not lie where the network has learnt them.
HEAD_SCALE, HEAD_SHIFT, HEAD_ANGLE = (0.8, 1.0), 0.06, 12.0
# Phase at the edge of the field of view, in radians: a slow drift, as a B0 inhomogeneity leaves.
PHASE_LIMIT = np.pi / 2
# Coils sit on a circle of this radius (edges are at 1); their sensitivity falls off as a Gaussian of this width.
COIL_CIRCLE, COIL_WIDTH = 1.2, 1.0
CACHED_SLICES = 256


def coordinates(shape_hw: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """x (1, W) and y (H, 1) of pixel centres, -1 to 1 from edge to edge, y upwards."""
    height, width = shape_hw
    x = (2 * np.arange(width) + 1) / width - 1
    y = 1 - (2 * np.arange(height) + 1) / height
    return x[None, :], y[:, None]


def shepp_logan(shape_hw: tuple[int, int], rng: np.random.Generator | None = None) -> np.ndarray:
    """Magnitude (H, W), float32, not negative. Without rng the phantom of the table, maximum 1."""
    x, y = coordinates(shape_hw)
    if rng is not None:
        scale, turn = rng.uniform(*HEAD_SCALE), np.deg2rad(rng.uniform(-HEAD_ANGLE, HEAD_ANGLE))
        dx, dy = rng.uniform(-HEAD_SHIFT, HEAD_SHIFT, 2)
        x, y = (x - dx) / scale, (y - dy) / scale
        x, y = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    image = np.zeros(shape_hw)
    for number, (value, a, b, x0, y0, degrees) in enumerate(ELLIPSES):
        if rng is not None and number > 1:  # the two outlines of the skull keep their distance
            a, b = np.array([a, b]) * rng.uniform(1 - AXIS_JITTER, 1 + AXIS_JITTER, 2)
            x0, y0 = np.array([x0, y0]) + rng.uniform(-PLACE_JITTER, PLACE_JITTER, 2)
            value *= rng.uniform(1 - VALUE_JITTER, 1 + VALUE_JITTER)
            degrees += rng.uniform(-ANGLE_JITTER, ANGLE_JITTER)
        cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        along, across = (x - x0) * cos + (y - y0) * sin, (y - y0) * cos - (x - x0) * sin
        image[(along / a) ** 2 + (across / b) ** 2 <= 1] += value
    return np.clip(image, 0, None).astype(np.float32)


def smooth_phase(shape_hw: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Phase (H, W) in radians: a random polynomial of second order, at most PHASE_LIMIT in magnitude."""
    x, y = coordinates(shape_hw)
    terms = (x + 0 * y, y + 0 * x, x * y, x**2 + 0 * y, y**2 + 0 * x)
    weights = rng.uniform(-1, 1, len(terms))
    phase = sum(weight * term for weight, term in zip(weights, terms, strict=True))
    return PHASE_LIMIT * phase / np.abs(weights).sum()


def coil_sensitivities(coils: int, shape_hw: tuple[int, int]) -> np.ndarray:
    """Smooth complex sensitivities (coils, H, W), complex64, with a sum of squares of 1 in every pixel.

    Coils on a circle around the head, each a Gaussian with a linear phase of its own. One coil is uniform.
    """
    x, y = coordinates(shape_hw)
    maps = np.empty((coils, *shape_hw), dtype=np.complex128)
    for coil in range(coils):
        angle = 2 * np.pi * coil / coils
        along = x * np.cos(angle) + y * np.sin(angle)
        squared = (x - COIL_CIRCLE * np.cos(angle)) ** 2 + (y - COIL_CIRCLE * np.sin(angle)) ** 2
        maps[coil] = np.exp(-squared / (2 * COIL_WIDTH**2)) * np.exp(1j * (angle + along))
    maps /= np.sqrt((np.abs(maps) ** 2).sum(0))
    if coils == 1:
        maps[:] = 1
    return maps.astype(np.complex64)


@lru_cache(maxsize=CACHED_SLICES)
def _object(shape_hw: tuple[int, int], seed: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(seed)
    magnitude = shepp_logan(shape_hw, rng)
    return (magnitude * np.exp(1j * smooth_phase(shape_hw, rng))).astype(np.complex64)


@lru_cache(maxsize=4)
def _coil_maps(coils: int, shape_hw: tuple[int, int]) -> np.ndarray:
    return coil_sensitivities(coils, shape_hw)


@dataclass(frozen=True)
class PhantomVolume(Volume):
    """Phantom slices, each of its own shape, contrast and phase; `seed` tells training from validation."""

    seed: int
    magnitude_only: bool = field(default=False, kw_only=True)

    def read(self, index: int) -> RawSlice:
        """The object (H, W), complex64, and its coil maps (coils, H, W)."""
        return RawSlice(
            image=_object(self.image_hw, (self.seed, index)),
            coil_maps=_coil_maps(self.coils, self.image_hw),
        )
