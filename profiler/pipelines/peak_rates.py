"""What a device could do at most, where that is known."""

from __future__ import annotations

import torch

from swinmr_profiling.profiler.batch_size.gpus import known_gpus

RATE_FIELDS = {torch.bfloat16: "bf16_tensor_tflops", torch.float16: "fp16_tensor_tflops"}


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
