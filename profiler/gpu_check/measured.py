"""Figures of a combination, their ratios to the prediction, and what they come to. Pure functions."""

from __future__ import annotations

import statistics
from typing import Any

from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, TrainingMeasurement

COMPARED = {
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
    "validation_allocated": "validation_allocated_bytes",
    "validation_reserved": "validation_reserved_bytes",
}


def training_figures(measured: TrainingMeasurement) -> dict[str, Any]:
    """Of a probe's answer: the peaks of the steps, of the validation, and what is beside the allocator."""
    cold, warm, validation = vars(measured.cold), vars(measured.warm), measured.validation
    copied = (
        "steps_run", "step_ms", "retries", "process_bytes", "device_used_bytes",
        "reserved_at_end_bytes", "expandable_segments", "before_bytes",
    )  # fmt: skip
    return {
        "source": "measured",
        "kind": measured.memory_kind,
        "input_shape": measured.input_shape,
        **{kind: None if peak is None else max(peak, warm[kind]) for kind, peak in cold.items()},
        "cold_allocated_bytes": measured.cold.allocated_bytes,
        "warm_allocated_bytes": measured.warm.allocated_bytes,
        "validation_allocated_bytes": validation.allocated_bytes,
        "validation_reserved_bytes": validation.reserved_bytes,
        **{key: getattr(measured, key) for key in copied},
        "context_bytes": measured.opening_bytes,
    }


def inference_figures(measured: BatchMeasurement) -> dict[str, Any]:
    """Of a measured forward pass."""
    return {
        "source": "measured",
        "kind": measured.memory_kind,
        "input_shape": measured.input_shape,
        "allocated_bytes": measured.peak_bytes,
        "reserved_bytes": measured.reserved_peak_bytes,
        "median_ms": statistics.median(measured.latency.samples_ms),
        "num_runs": len(measured.latency.samples_ms),
        "attention": measured.attention,
    }


def ratios(
    measured: dict[str, Any] | None, predicted: dict[str, Any] | None
) -> dict[str, float | None] | None:
    """Measured over predicted, for what both have; requested bytes are held against live ones."""
    if measured is None or predicted is None or predicted["source"] is None:
        return None
    found = {name: _ratio(measured.get(key), predicted.get(key)) for name, key in COMPARED.items()}
    return {**found, "requested": _ratio(measured.get("requested_bytes"), predicted.get("live_bytes"))}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, and the median and the worst distance of each ratio from 1 (0.01 is 1 % off)."""
    found: dict[str, Any] = {
        "combinations": len(rows),
        "measured": sum(row["status"] == "measured" for row in rows),
        "not_run": sum(row["status"] == "not run" for row in rows),
    }
    for allocator in ("default", "expandable"):
        for name in (*COMPARED, "requested"):
            values = [
                abs(row["ratios"][name] - 1)
                for row in rows
                if row["allocator"] == allocator and row["ratios"] and row["ratios"][name] is not None
            ]
            if values:
                found[f"{name}_{allocator}"] = {
                    "median": statistics.median(values),
                    "worst": max(values),
                    "num_runs": len(values),
                }
    return found


def _ratio(measured: int | None, predicted: int | None) -> float | None:
    return measured / predicted if measured is not None and predicted else None


def table(content: dict[str, Any]) -> str:
    """The combinations, one a line: MiB measured and predicted, and their ratio."""
    names = ("allocated", "predicted", "ratio", "reserved", "ratio")
    head = f"{'combination':32} {'batch':>6} " + " ".join(
        f"{name:>{6 if name == 'ratio' else 10}}" for name in names
    )
    lines = [head, "-" * len(head)]
    for row in content["combinations"]:
        name, batch = row["name"], row["batch_size"]
        batch_text = "-" if batch is None else f"{batch:,}"
        if row["measured"] is None:
            lines.append(f"{name:32} {batch_text:>6} {row['status']}: {row.get('reason', '')}")
            continue
        measured, predicted = row["measured"], row["predicted"] or {}
        found = row["ratios"] or {}
        cells = [
            f"{_mib(measured['allocated_bytes']):>10}",
            f"{_mib(predicted.get('allocated_bytes')):>10}",
            f"{_share(found.get('allocated')):>6}",
            f"{_mib(measured['reserved_bytes']):>10}",
            f"{_share(found.get('reserved')):>6}",
        ]
        lines.append(f"{name:32} {batch_text:>6} {' '.join(cells)}")
    return "\n".join(lines)


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:,.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
