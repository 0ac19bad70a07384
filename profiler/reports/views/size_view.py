"""The batch sizes of a profile: what each took, or why it has no figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch
from swinmr_profiling.profiler.record.blocks.figures import Block
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.views.training_view import TrainingSize, read_training

# What is shown of `timing` and of `memory`, under the same names.
TIMING = (
    "num_runs", "runs_by_process", "mean_ms", "std_ms", "min_ms", "max_ms", "median_ms", "p90_ms", "p95_ms", "p99_ms",
    "ci95_median_ms", "images_per_second", "samples_ms",
)  # fmt: skip
MEMORY = (
    "peak_bytes", "activation_bytes", "noise_bytes", "activation_within_noise", "peak_reserved_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class SizeView:
    """One batch size. `error` is None where it ran; milliseconds are per forward pass of the whole batch."""

    batch_size: int
    source: str
    input_shape: tuple[int, ...] | None
    training: TrainingSize | None
    error: str | None = None
    detail: str | None = None
    num_runs: int | None = None
    runs_by_process: tuple[int, ...] | None = None
    mean_ms: float | None = None
    std_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    median_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    ci95_median_ms: tuple[float, float] | None = None
    images_per_second: float | None = None
    samples_ms: tuple[float, ...] | None = None
    memory_kind: str | None = None
    peak_bytes: int | None = None
    activation_bytes: int | None = None
    noise_bytes: int | None = None
    activation_within_noise: bool | None = None
    peak_reserved_bytes: int | None = None

    @property
    def ran(self) -> bool:
        return self.error is None and self.median_ms is not None


def read_sizes(profile: Profile) -> tuple[SizeView, ...]:
    blocks = {int(size): block for size, block in profile.batch_profiling.items()}
    if profile.single_image is not None:
        blocks.setdefault(1, profile.single_image)
    return tuple(_size(blocks[size], size) for size in sorted(blocks))


def _size(block: Batch, batch_size: int) -> SizeView:
    shape = None if block.input_shape is None else tuple(block.input_shape)  # of the original script's
    training = read_training(block.training)
    if isinstance(block, FailedBatch):
        return SizeView(batch_size, "measured", shape, training, error=block.error, detail=block.detail)
    return SizeView(
        batch_size,
        block.source,
        shape,
        training,
        **_figures(block.timing, TIMING),
        **_figures(block.memory, MEMORY),
        memory_kind=None if block.memory is None else block.memory.kind,
    )


def _figures(block: Block | None, names: Sequence[str]) -> dict[str, Any]:
    """Of a profile of the original script some are missing, and a size without any memory."""
    found = {} if block is None else {name: getattr(block, name) for name in names}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
