"""Warnings of a run at the figures that they touch: a busy machine's latency must not stand there as if sound."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.warnings import ProfileWarning

# What a warning's code is about; what is not here is about the run as a whole.
LATENCY, MACS, INFERENCE_MEMORY, TRAINING_MEMORY = "latency", "macs", "memory_inference", "memory_training"
TOUCHES = {
    "machine_busy": LATENCY,
    "power_saving": LATENCY,
    "time_stolen": LATENCY,
    "gpu_throttled": LATENCY,
    "gpu_shared": LATENCY,
    "nonfinite_output": LATENCY,
    "uncounted_operators": MACS,
    "counters_disagree": MACS,
    "memory_cold_spike": INFERENCE_MEMORY,
    "training_cold_spike": TRAINING_MEMORY,
    "training_retries": TRAINING_MEMORY,
    "memory_not_predicted": TRAINING_MEMORY,
}


def doubts_about(
    warnings: Sequence[ProfileWarning], what: str, batch_size: int | None = None
) -> tuple[str, ...]:
    """The warnings that touch a figure. batch_size: of the figure; None for one of all sizes."""
    return tuple(
        one.message
        for one in warnings
        if TOUCHES.get(one.code) == what and (batch_size is None or one.batch_size in (None, batch_size))
    )
