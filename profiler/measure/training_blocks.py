"""From the raw measurement of a training step to the `training` block of a batch size. Pure functions."""

from __future__ import annotations

import statistics
from typing import Any

from swinmr_profiling.profiler.record.failures import Failure


def training_block(measured: dict[str, Any]) -> dict[str, Any]:
    """The block of a batch size whose training step was measured; memory in bytes, what is not known is null.

    `peak_bytes` and its like are of the training steps; whole images have their own under `validation`. Throughput
    is of the steps after the first: that one makes the optimizer's state and compiles what is compiled.
    """
    cold, warm, validation = measured["cold"], measured["warm"], measured["validation"]
    warm_ms = measured["step_ms"][1:]
    images = measured["batch_size"] * measured["accumulate"]
    return {
        "source": "measured",
        "input_shape": measured["input_shape"],
        "num_runs": measured["steps_run"],
        "kind": measured["memory_kind"],
        "precision": measured["precision"],
        "checkpointing": measured["checkpointing"],
        "patch_size": measured["patch_size"],
        "accumulate": measured["accumulate"],
        "loss": measured["loss"],
        "peak_bytes": max(cold["allocated_bytes"], warm["allocated_bytes"]),
        "peak_reserved_bytes": _larger(cold["reserved_bytes"], warm["reserved_bytes"]),
        "live_bytes": None,
        "requested_peak_bytes": _larger(cold["requested_bytes"], warm["requested_bytes"]),
        "before_bytes": measured["before_bytes"],
        "cold_peak_bytes": cold["allocated_bytes"],
        "warm_peak_bytes": warm["allocated_bytes"],
        "process_bytes": measured["process_bytes"],
        "device_used_bytes": measured["device_used_bytes"],
        "live_interval_bytes": None,
        "reserved_interval_bytes": None,
        "by_category": None,
        "peak_phase": None,
        "peak_operator": None,
        "workspace_bytes": None,
        "context_bytes": context_bytes(measured),
        "validation": {
            "input_shape": measured["validation_shape"],
            "allocated_bytes": validation["allocated_bytes"],
            "requested_bytes": validation["requested_bytes"],
            "reserved_bytes": validation["reserved_bytes"],
        },
        "ddp_bucket_bytes": None,
        "steps_run": measured["steps_run"],
        "step_ms": measured["step_ms"],
        "images_per_second": images * 1000 / statistics.median(warm_ms) if warm_ms else None,
        "retries": measured["retries"],
        "out_of_memory": measured["out_of_memory"],
        "expandable_segments": measured["expandable_segments"],
        "assumptions": [] if measured["finite"] else ["a loss was not finite: random inputs, random weights"],
    }


def failed_training_block(failure: Failure, input_shape: list[int]) -> dict[str, Any]:
    """The block of a batch size whose training step has no figures."""
    return {
        "error": failure.error.value,
        "detail": failure.detail,
        "input_shape": input_shape,
        "source": "measured",
    }


def _larger(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else max(first, second)


def context_bytes(measured: dict[str, Any]) -> int | None:
    """What the process holds outside its allocator: its own total where NVML gives it, else what opening it took."""
    process, reserved = measured["process_bytes"], measured["reserved_at_end_bytes"]
    if process is not None and reserved is not None:
        return max(process - reserved, 0)
    return measured["context_bytes"]
