"""What a device could do at most, where that is known."""

from __future__ import annotations

import json
from pathlib import Path

import torch

RATES_FILE = Path(__file__).resolve().parent.parent.parent / "configs" / "gpu_peak_rates.json"
RATE_KEYS = {torch.bfloat16: "bf16_tflops", torch.float16: "fp16_tflops"}


def peak_tflops(device_name: str, dtype: torch.dtype, *, allows_tf32: bool = False) -> float | None:
    """Dense peak of a GPU by the name its driver gives, 10^12 FLOP/s.

    None for a CPU, an unknown card, and a name that stands for cards of different rates.
    """
    key = RATE_KEYS.get(dtype, "tf32_tflops" if allows_tf32 else "fp32_tflops")
    gpus = json.loads(RATES_FILE.read_text(encoding="utf-8"))["gpus"]
    rates = {gpu[key] for gpu in gpus if device_name in (gpu["name"], *gpu["aliases"])}
    return rates.pop() if len(rates) == 1 else None


def device_peak_tflops(device: torch.device, dtype: torch.dtype) -> float | None:
    """`peak_tflops` of a torch device."""
    if device.type != "cuda":
        return None
    allows_tf32 = dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    return peak_tflops(torch.cuda.get_device_name(device), dtype, allows_tf32=allows_tf32)
