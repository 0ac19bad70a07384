"""From raw measurements to the JSON blocks of a batch size: `timing`, `memory`, and the warnings they earn."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.profiler.measure.latency import TARGET_HALF_WIDTH
from swinmr_profiling.profiler.measure.process_statistics import (
    median_interval_of_processes,
    process_warnings,
    split_by_process,
)
from swinmr_profiling.profiler.measure.timing_statistics import TimingWarning, interval_share, summarise
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.units import MIB
from swinmr_profiling.profiler.record.warnings import ProfileWarning

# cudnn.benchmark tries algorithms with large workspaces in the first run: a cold peak a tenth above the warm one
# is that, and it is what decides whether the first step fits.
COLD_SPIKE_SHARE = 0.10

TIMING_WORDS = {
    TimingWarning.NOISY: "the inter-quartile range is over 10 % of the median: close other programs, raise "
    "--num-runs or --time-budget",
    TimingWarning.DRIFT: "the last third of the runs differs from the first by over 5 %: the machine's speed "
    "changed while measuring (heat, other work)",
    TimingWarning.TWO_MODES: "the runs fall into two groups: clocks that switch, or other work every few runs",
    TimingWarning.OUTLIERS: "at least one run in twenty is far slower than the rest: read the median, not the "
    "mean",
    TimingWarning.PROCESSES_DIFFER: "the medians of the measuring processes differ by over 10 % more than the runs "
    "within them explain: trust the interval, not a single process",
}


def series_of(latency: dict[str, Any]) -> list[list[float]]:
    """The timed runs of each measuring process, ms."""
    samples = latency["samples_ms"]
    return split_by_process(samples, latency.get("runs_by_process", [len(samples)]))


def timing_block(measurement: dict[str, Any], device_kind: str) -> dict[str, Any]:
    """The `timing` block: milliseconds per forward pass of the whole batch, images per second, raw samples.

    The samples of several processes follow one another; `runs_by_process` says where each begins.
    """
    latency = measurement["latency"]
    samples = latency["samples_ms"]
    statistics = summarise(samples)
    images_per_second = measurement["batch_size"] * 1000 / statistics.mean_ms
    series = series_of(latency)
    interval = median_interval_of_processes(series)
    return {
        "source": "measured",
        "input_shape": measurement["input_shape"],
        "num_runs": statistics.num_runs,
        "num_processes": len(series),
        "runs_by_process": [len(one) for one in series],
        "mean_ms": statistics.mean_ms,
        "std_ms": statistics.std_ms,
        "min_ms": statistics.min_ms,
        "max_ms": statistics.max_ms,
        "median_ms": statistics.median_ms,
        "p90_ms": statistics.p90_ms,
        "p95_ms": statistics.p95_ms,
        "p99_ms": statistics.p99_ms,
        "iqr_ms": statistics.iqr_ms,
        "ci95_median_ms": None if interval is None else list(interval),
        "ci95_half_width_share": interval_share(interval, statistics.median_ms),
        "ci95_target_half_width_share": TARGET_HALF_WIDTH[device_kind],
        "fps": images_per_second,
        "images_per_second": images_per_second,
        "warmup_runs": len(latency["warmup_ms"]),
        "stop_reason": latency["stop_reason"],
        "notes": latency["notes"],
        "samples_ms": samples,
        "warmup_ms": latency["warmup_ms"],
    }


def noise_bytes(measurement: dict[str, Any]) -> int:
    """How far the memory of a batch size is no matter of the network; 0 for an allocator's own counters.

    Resident memory holds code of libraries, loaded when it is first used, and heap that the C library keeps. What
    the runs leave behind, |after - before|, is such: the network holds as much as before.
    """
    return (
        0 if measurement["memory_is_exact"] else abs(measurement["after_bytes"] - measurement["before_bytes"])
    )


def activation_bytes(measurement: dict[str, Any]) -> int:
    """The peak less what was in use before the first forward (weights and inputs included there).

    Of resident memory, less the larger of before and after: what stayed was not the forward's.
    """
    in_use = measurement["before_bytes"]
    if not measurement["memory_is_exact"]:
        in_use = max(in_use, measurement["after_bytes"])
    return measurement["peak_bytes"] - in_use


def memory_block(measurement: dict[str, Any]) -> dict[str, Any]:
    """The `memory` block: MiB under the names users know, exact bytes beside them."""
    activation, noise = activation_bytes(measurement), noise_bytes(measurement)
    reserved = measurement["reserved_peak_bytes"]
    return {
        "source": "measured",
        "input_shape": measurement["input_shape"],
        "num_runs": len(measurement["latency"]["samples_ms"]) + len(measurement["latency"]["warmup_ms"]),
        "kind": measurement["memory_kind"],
        "before_mb": measurement["before_bytes"] / MIB,
        "after_mb": measurement["after_bytes"] / MIB,
        "peak_mb": measurement["peak_bytes"] / MIB,
        "activation_mb": activation / MIB,
        "peak_reserved_mb": None if reserved is None else reserved / MIB,
        "before_bytes": measurement["before_bytes"],
        "after_bytes": measurement["after_bytes"],
        "peak_bytes": measurement["peak_bytes"],
        "activation_bytes": activation,
        "noise_bytes": noise,
        "activation_within_noise": not measurement["memory_is_exact"] and activation <= noise,
        "peak_reserved_bytes": reserved,
        "cold_peak_bytes": measurement["cold_peak_bytes"],
        "warm_peak_bytes": measurement["warm_peak_bytes"],
    }


def perceptual_metric_block(measurement: dict[str, Any], device_kind: str) -> dict[str, Any]:
    """The block of LPIPS: the cost of one comparison of two images, whatever its value."""
    return {
        "source": "measured",
        "metric": "lpips",
        "backbone": "alex, random weights: the cost is right, the value would mean nothing",
        "input_shape": measurement["input_shape"],
        "num_runs": len(measurement["latency"]["samples_ms"]),
        "total_parameters": measurement["parameters"],
        "macs": measurement["macs"],
        "flops": 2 * measurement["macs"],
        "timing": timing_block({**measurement, "batch_size": 1}, device_kind),
    }


def batch_block(measurement: dict[str, Any], device_kind: str) -> dict[str, Any]:
    """The block of one measured batch size."""
    return {
        "source": "measured",
        "batch_size": measurement["batch_size"],
        "input_shape": measurement["input_shape"],
        "num_runs": len(measurement["latency"]["samples_ms"]),
        "attention": measurement.get("attention"),
        "timing": timing_block(measurement, device_kind),
        "memory": memory_block(measurement),
    }


def failure_block(
    failure: Failure, batch_size: int, input_shape: list[int], known: dict[str, Any]
) -> dict[str, Any]:
    """The block of a batch size without figures: why, and what was known or expected beforehand."""
    return {
        "error": failure.error.value,
        "detail": failure.detail,
        "batch_size": batch_size,
        "input_shape": input_shape,
        **known,
    }


def measurement_warnings(measurement: dict[str, Any], device_kind: str) -> list[ProfileWarning]:
    """What the reader of this batch size must know."""
    batch = measurement["batch_size"]
    found = [
        ProfileWarning(f"timing_{kind.value}", f"batch {batch}: {TIMING_WORDS[kind]}", batch)
        for kind in process_warnings(series_of(measurement["latency"]))
    ]
    cold, warm = measurement["cold_peak_bytes"], measurement["warm_peak_bytes"]
    if device_kind == "cuda" and cold > warm * (1 + COLD_SPIKE_SHARE):
        text = (
            f"batch {batch}: the first runs peaked at {cold / MIB:,.0f} MiB, the later ones at "
            f"{warm / MIB:,.0f}: cuDNN tried algorithms; the first figure must fit"
        )
        found.append(ProfileWarning("memory_cold_spike", text, batch))
    culprit = measurement["first_nonfinite_module"]
    if culprit is not None:
        text = f"batch {batch}: the output holds NaN or infinity, made first by module {culprit}"
        found.append(ProfileWarning("nonfinite_output", text, batch))
    return found
