"""The batch sizes of a profile: what each took, or why it has no figures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from swinmr_profiling.profiler.record.fields import Fields, ProfileShapeError, printable
from swinmr_profiling.profiler.reports.views.training_view import TrainingSize, read_training


@dataclass(frozen=True)
class SizeView:
    """One batch size. `error` is None where it ran; milliseconds are per forward pass of the whole batch."""

    batch_size: int
    source: str
    input_shape: tuple[int, ...] | None
    error: str | None
    detail: str | None
    num_runs: int | None
    runs_by_process: tuple[int, ...] | None
    mean_ms: float | None
    std_ms: float | None
    min_ms: float | None
    max_ms: float | None
    median_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    ci95_median_ms: tuple[float, float] | None
    images_per_second: float | None
    samples_ms: tuple[float, ...] | None
    notes: tuple[str, ...]
    memory_kind: str | None
    before_bytes: int | None
    peak_bytes: int | None
    activation_bytes: int | None
    noise_bytes: int | None
    activation_within_noise: bool | None
    peak_reserved_bytes: int | None
    expected_latency_ms: float | None
    expected_from_batch: int | None
    training: TrainingSize | None

    @property
    def ran(self) -> bool:
        return self.error is None and self.median_ms is not None


def read_sizes(profile: Fields) -> tuple[SizeView, ...]:
    batches = profile.block("batch_profiling") or Fields({}, "batch_profiling")
    found = {}
    for size in batches.keys():  # noqa: SIM118
        if not re.fullmatch(r"[1-9][0-9]{0,9}", size):
            raise ProfileShapeError(f"batch_profiling: {printable(size[:40])!r} is no batch size")
        block = batches.block(size)
        if block is not None:
            found[int(size)] = _size(block, int(size))
    single = profile.block("single_image")
    if single is not None and 1 not in found:
        found[1] = _size(single, 1)
    return tuple(found[size] for size in sorted(found))


def _size(block: Fields, batch_size: int) -> SizeView:
    nothing = Fields({}, block.path)
    timing, memory = block.block("timing") or nothing, block.block("memory") or nothing
    expected = block.block("expected") or nothing
    return SizeView(
        batch_size=batch_size,
        source=block.text("source") or "measured",
        input_shape=block.shape("input_shape"),
        error=block.text("error"),
        detail=block.text("detail"),
        num_runs=timing.integer("num_runs"),
        runs_by_process=timing.shape("runs_by_process"),
        mean_ms=timing.amount("mean_ms"),
        std_ms=timing.amount("std_ms"),
        min_ms=timing.amount("min_ms"),
        max_ms=timing.amount("max_ms"),
        median_ms=timing.amount("median_ms"),
        p90_ms=timing.amount("p90_ms"),
        p95_ms=timing.amount("p95_ms"),
        p99_ms=timing.amount("p99_ms"),
        ci95_median_ms=timing.interval("ci95_median_ms"),
        images_per_second=timing.amount("images_per_second"),
        samples_ms=timing.amounts("samples_ms") or None,
        notes=tuple(timing.texts("notes")),
        memory_kind=memory.text("kind"),
        before_bytes=memory.integer("before_bytes"),
        peak_bytes=memory.integer("peak_bytes"),
        activation_bytes=memory.number("activation_bytes"),
        noise_bytes=memory.integer("noise_bytes"),
        activation_within_noise=memory.flag("activation_within_noise"),
        peak_reserved_bytes=memory.integer("peak_reserved_bytes"),
        expected_latency_ms=expected.amount("latency_ms"),
        expected_from_batch=expected.integer("from_batch"),
        training=read_training(block.block("training")),
    )
