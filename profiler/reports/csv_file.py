"""A profile as CSV: a line per batch size, units in the columns' names, empty where nothing is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from swinmr_profiling.configs.writing.atomic_files import table_text
from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch
from swinmr_profiling.profiler.record.blocks.figures import Block
from swinmr_profiling.profiler.reports.views.view import ProfileView

MODEL_COLUMNS = (
    "profile", "config_file", "model", "device", "hardware", "precision", "status", "total_parameters", "macs",
    "macs_convention", "flops",
)  # fmt: skip
# Before and after the two bounds of the interval.
TIMING = ("num_runs", "mean_ms", "std_ms", "min_ms", "median_ms")
FURTHER_TIMING = ("p90_ms", "p95_ms", "p99_ms", "max_ms", "images_per_second")
MEMORY = (
    "peak_bytes", "activation_bytes", "noise_bytes", "activation_within_noise", "peak_reserved_bytes",
)  # fmt: skip
SIZE_COLUMNS = (
    "batch_size", "source", "input_shape", "error", "detail", *TIMING, "ci95_low_ms", "ci95_high_ms", *FURTHER_TIMING,
    "memory_kind", *MEMORY,
)  # fmt: skip
# Of the training block, by the name of its column.
TRAINING = {
    "training_source": "source",
    "training_error": "error",
    "training_precision": "precision",
    "training_checkpointing": "checkpointing",
    "training_peak_bytes": "peak_bytes",
    "training_reserved_bytes": "peak_reserved_bytes",
    "training_process_bytes": "process_bytes",
    "training_images_per_second": "images_per_second",
}


def csv_text(view: ProfileView) -> str:
    """The whole file. A profile without a batch size has one line, with what is known of the network."""
    profile, one = view.profile, view.profile.architecture
    counts = (None,) * 4 if one is None else (one.total_parameters, one.macs, view.macs_convention, one.flops)
    model = [
        view.file, view.config_file, view.model, view.device, view.hardware, profile.config.precision, profile.status,
        *counts,
    ]  # fmt: skip
    nothing = [None] * (len(SIZE_COLUMNS) + len(TRAINING))
    rows = [[*model, *_size_cells(size)] for size in view.sizes] or [[*model, *nothing]]
    return table_text([*MODEL_COLUMNS, *SIZE_COLUMNS, *TRAINING], rows)


def _size_cells(size: Batch) -> list[Any]:
    shape = None if size.input_shape is None else "x".join(map(str, size.input_shape))
    training = _cells(size.training, TRAINING.values())
    if isinstance(size, FailedBatch):
        cells = [size.batch_size, "measured", shape, size.error, size.detail]
        return [*cells, *[None] * (len(SIZE_COLUMNS) - len(cells)), *training]
    timing, memory = size.timing, size.memory
    return [
        size.batch_size, size.source, shape, None, None, *_cells(timing, TIMING),
        *(timing.ci95_median_ms or (None, None)), *_cells(timing, FURTHER_TIMING), memory.kind, *_cells(memory, MEMORY),
        *training,
    ]  # fmt: skip


def _cells(block: Block | None, names: Iterable[str]) -> list[Any]:
    """What a block has of these; what it has not, such as a failure's figures, is None."""
    return [getattr(block, name, None) for name in names]
