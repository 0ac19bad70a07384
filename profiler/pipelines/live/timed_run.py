"""One run that nobody watches: its seconds, and the memory it takes on a CUDA device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from swinmr_profiling.profiler.pipelines.defined.json_records import TimedRun
from swinmr_profiling.profiler.pipelines.live.anatomy import networks_of


def timed_run(pipe: Any, call: Callable[[], object]) -> TimedRun:
    """Wall time of `call()`, and of the caching allocator's bytes the most that was allocated and reserved in it."""
    device = _cuda_device(pipe)
    if device is not None:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    call()
    if device is not None:
        torch.cuda.synchronize(device)
    return {
        "inference_time_seconds": time.perf_counter() - started,
        "cuda_peak_allocated_bytes": None if device is None else torch.cuda.max_memory_allocated(device),
        "cuda_peak_reserved_bytes": None if device is None else torch.cuda.max_memory_reserved(device),
    }


def _cuda_device(pipe: Any) -> torch.device | None:
    """Where the pipeline computes, if that is CUDA; with offloading its weights may lie elsewhere meanwhile."""
    devices = [getattr(pipe, "_execution_device", None)]
    devices += [p.device for network in networks_of(pipe).values() for p in network.parameters()]
    return next((d for d in devices if isinstance(d, torch.device) and d.type == "cuda"), None)
