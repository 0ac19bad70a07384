"""One run that nobody watches: its seconds, the memory it takes on a CUDA device, and what that could do at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from swinmr_profiling.profiler.batch_size.gpus import known_gpus
from swinmr_profiling.profiler.pipelines.live.anatomy import networks_of

RATE_FIELDS = {torch.bfloat16: "bf16_tensor_tflops", torch.float16: "fp16_tensor_tflops"}


@dataclass(frozen=True)
class TimedRun:
    """Seconds, and the caching allocator's peaks in bytes; None where nobody took them, or without a CUDA device."""

    seconds: float | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None


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
    seconds = time.perf_counter() - started
    if device is None:
        return TimedRun(seconds)
    return TimedRun(seconds, torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))


def _cuda_device(pipe: Any) -> torch.device | None:
    """Where the pipeline computes, if that is CUDA; with offloading its weights may lie elsewhere meanwhile."""
    devices = [getattr(pipe, "_execution_device", None)]
    devices += [p.device for network in networks_of(pipe).values() for p in network.parameters()]
    return next((d for d in devices if isinstance(d, torch.device) and d.type == "cuda"), None)


def peak_tflops(device_name: str, dtype: torch.dtype, *, allows_tf32: bool = False) -> float | None:
    """Dense peak of a GPU by the name its driver gives, 10^12 FLOP/s.

    None for a CPU, an unknown card, and a name that stands for cards of different rates.
    """
    field = RATE_FIELDS.get(dtype, "tf32_tflops" if allows_tf32 else "fp32_tflops")
    rates = {getattr(gpu, field) for gpu in known_gpus() if device_name in (gpu.name, *gpu.aliases)}
    return rates.pop() if len(rates) == 1 else None


def device_peak_tflops(device: torch.device, dtype: torch.dtype) -> float | None:
    """`peak_tflops` of a torch device."""
    if device.type != "cuda":
        return None
    allows_tf32 = dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    return peak_tflops(torch.cuda.get_device_name(device), dtype, allows_tf32=allows_tf32)
