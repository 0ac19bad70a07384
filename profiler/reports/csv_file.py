"""A profile as CSV: a line per batch size, units in the columns' names, empty where nothing is known."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs.writing.atomic_files import table_text
from swinmr_profiling.profiler.reports.views.size_view import SizeView
from swinmr_profiling.profiler.reports.views.view import ProfileView

MODEL_COLUMNS = (
    "profile", "config_file", "model", "device", "hardware", "precision", "status", "total_parameters", "macs",
    "macs_convention", "flops",
)  # fmt: skip
SIZE_COLUMNS = (
    "batch_size", "source", "input_shape", "error", "detail", "num_runs", "mean_ms", "std_ms", "min_ms", "median_ms",
    "ci95_low_ms", "ci95_high_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms", "images_per_second", "memory_kind",
    "peak_bytes", "activation_bytes", "noise_bytes", "activation_within_noise", "peak_reserved_bytes",
)  # fmt: skip
TRAINING_COLUMNS = (
    "training_source", "training_error", "training_precision", "training_checkpointing", "training_peak_bytes",
    "training_reserved_bytes", "training_process_bytes", "training_images_per_second",
)  # fmt: skip


def csv_text(view: ProfileView) -> str:
    """The whole file. A profile without a batch size has one line, with what is known of the network."""
    one = view.architecture
    counts = (None,) * 4 if one is None else (one.parameters, one.macs, one.macs_convention, one.flops)
    model = [
        view.file, view.config_file, view.model, view.device, view.hardware, view.precision, view.status, *counts,
    ]  # fmt: skip
    nothing = [None] * (len(SIZE_COLUMNS) + len(TRAINING_COLUMNS))
    rows = [[*model, *_size_cells(size)] for size in view.sizes] or [[*model, *nothing]]
    return table_text([*MODEL_COLUMNS, *SIZE_COLUMNS, *TRAINING_COLUMNS], rows)


def _size_cells(size: SizeView) -> list[Any]:
    low, high = size.ci95_median_ms or (None, None)
    shape = None if size.input_shape is None else "x".join(map(str, size.input_shape))
    training = size.training
    cells = [
        size.batch_size, size.source, shape, size.error, size.detail, size.num_runs, size.mean_ms, size.std_ms,
        size.min_ms, size.median_ms, low, high, size.p90_ms, size.p95_ms, size.p99_ms, size.max_ms,
        size.images_per_second, size.memory_kind, size.peak_bytes, size.activation_bytes, size.noise_bytes,
        size.activation_within_noise, size.peak_reserved_bytes,
    ]  # fmt: skip
    if training is None:
        return [*cells, *(None for _ in TRAINING_COLUMNS)]
    return [
        *cells, training.source, training.error, training.precision, training.checkpointing, training.peak_bytes,
        training.peak_reserved_bytes, training.process_bytes, training.images_per_second,
    ]  # fmt: skip
