"""How long one image takes: the network alone, warm, the device waited for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.training.evaluation.evaluation import reconstruct

WARMUP_RUNS, TIMED_RUNS = 3, 20
# Slow networks on a CPU: fewer runs, at least one warm-up and two timed.
TIME_BUDGET_S = 20.0
LEAST_TIMED_RUNS = 2


def measure_latency(
    network: nn.Module,
    image: Tensor,
    autocast_dtype: torch.dtype | None,
    run: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """The `latency` block of a summary, of one image (1, C, H, W) on the network's device.

    3 warm-up runs that are not counted, then 20 timed ones, all within 20 seconds where that leaves at least 1
    and 2. Loading, data consistency and metrics are not in it. run: what is timed in place of one call of the
    network, such as the sampling of one image.
    """
    run = run or (lambda: reconstruct(network, image, autocast_dtype))
    started = time.perf_counter()

    def timed_ms() -> float:
        _wait(image.device)
        begun = time.perf_counter()
        run()
        _wait(image.device)
        return 1000 * (time.perf_counter() - begun)

    def in_budget() -> bool:
        return time.perf_counter() - started < TIME_BUDGET_S

    was_training = network.training
    network.eval()
    try:
        warmup = [timed_ms()]
        while len(warmup) < WARMUP_RUNS and in_budget():
            warmup.append(timed_ms())
        samples: list[float] = []
        while len(samples) < LEAST_TIMED_RUNS or (len(samples) < TIMED_RUNS and in_budget()):
            samples.append(timed_ms())
    finally:
        network.train(was_training)
    return {
        "what": "network on one image, input and output on the device; no loading, data consistency or metrics",
        "source": "measured",
        "input_shape": list(image.shape),
        "warmup_runs": len(warmup),
        "num_runs": len(samples),
        "median_ms": statistics.median(samples),
        "mean_ms": statistics.fmean(samples),
        "std_ms": statistics.stdev(samples),
        "min_ms": min(samples),
        "max_ms": max(samples),
        "samples_ms": samples,
        "cpu_threads": torch.get_num_threads(),
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
