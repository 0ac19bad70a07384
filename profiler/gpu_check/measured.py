"""Figures of a combination, their ratios to the prediction, and what they come to. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from swinmr_profiling.profiler.gpu_check.record import Measured, Predicted, Ratios, Row, Spread
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, TrainingMeasurement
from swinmr_profiling.profiler.measure.measurement_blocks import larger

COMPARED = {
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
    "validation_allocated": "validation_allocated_bytes",
    "validation_reserved": "validation_reserved_bytes",
}


def training_figures(measured: TrainingMeasurement) -> Measured:
    """Of a probe's answer."""
    cold, warm, validation = measured.cold, measured.warm, measured.validation
    assert validation is not None  # of this project's own step
    return Measured(
        source="measured",
        kind=measured.memory_kind,
        input_shape=measured.input_shape,
        allocated_bytes=max(cold.allocated_bytes, warm.allocated_bytes),
        requested_bytes=larger(cold.requested_bytes, warm.requested_bytes),
        reserved_bytes=larger(cold.reserved_bytes, warm.reserved_bytes),
        cold_allocated_bytes=cold.allocated_bytes,
        warm_allocated_bytes=warm.allocated_bytes,
        validation_allocated_bytes=validation.allocated_bytes,
        validation_reserved_bytes=validation.reserved_bytes,
        steps_run=measured.steps_run,
        step_ms=measured.step_ms,
        retries=measured.retries,
        process_bytes=measured.process_bytes,
        device_used_bytes=measured.device_used_bytes,
        reserved_at_end_bytes=measured.reserved_at_end_bytes,
        expandable_segments=measured.expandable_segments,
        before_bytes=measured.before_bytes,
        context_bytes=measured.opening_bytes,
    )


def inference_figures(measured: BatchMeasurement) -> Measured:
    """Of a measured forward pass."""
    return Measured(
        source="measured",
        kind=measured.memory_kind,
        input_shape=measured.input_shape,
        allocated_bytes=measured.peak_bytes,
        reserved_bytes=measured.reserved_peak_bytes,
        median_ms=statistics.median(measured.latency.samples_ms),
        num_runs=len(measured.latency.samples_ms),
        attention=measured.attention,
    )


def ratios(measured: Measured | None, predicted: Predicted | None) -> Ratios | None:
    """Measured over predicted, for what both have.

    Requested bytes are those of everything alive, cuBLAS's workspaces too, which live bytes of a trace are without.
    """
    if measured is None or predicted is None or predicted.source is None:
        return None
    found = {name: _ratio(getattr(measured, key), getattr(predicted, key)) for name, key in COMPARED.items()}
    live = predicted.live_bytes
    requested = None if live is None else live + (predicted.workspace_bytes or 0)
    return Ratios(**found, requested=_ratio(measured.requested_bytes, requested))


def summary(rows: Sequence[Row]) -> dict[str, int | Spread]:
    """Counts, and the median and the worst distance of each ratio from 1."""
    found: dict[str, int | Spread] = {
        "combinations": len(rows),
        "measured": sum(row.status == "measured" for row in rows),
        "not_run": sum(row.status == "not run" for row in rows),
    }
    for allocator in ("default", "expandable"):
        for name in (*COMPARED, "requested"):
            known = [getattr(row.ratios, name, None) for row in rows if row.allocator == allocator]
            if values := [abs(ratio - 1) for ratio in known if ratio is not None]:
                found[f"{name}_{allocator}"] = Spread(
                    median=statistics.median(values), worst=max(values), num_runs=len(values)
                )
    return found


def _ratio(measured: int | None, predicted: int | None) -> float | None:
    return measured / predicted if measured is not None and predicted else None


def table(rows: Sequence[Row]) -> str:
    """The combinations, one a line: MiB measured and predicted, and their ratio."""
    names = ("allocated", "predicted", "ratio", "reserved", "ratio")
    head = f"{'combination':32} {'batch':>6} " + " ".join(
        f"{name:>{6 if name == 'ratio' else 10}}" for name in names
    )
    lines = [head, "-" * len(head)]
    for row in rows:
        batch_text = "-" if row.batch_size is None else f"{row.batch_size:,}"
        if row.measured is None:
            lines.append(f"{row.name:32} {batch_text:>6} {row.status}: {row.reason or ''}")
            continue
        cells = [
            f"{_mib(row.measured.allocated_bytes):>10}",
            f"{_mib(getattr(row.predicted, 'allocated_bytes', None)):>10}",
            f"{_share(getattr(row.ratios, 'allocated', None)):>6}",
            f"{_mib(row.measured.reserved_bytes):>10}",
            f"{_share(getattr(row.ratios, 'reserved', None)):>6}",
        ]
        lines.append(f"{row.name:32} {batch_text:>6} {' '.join(cells)}")
    return "\n".join(lines)


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:,.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
