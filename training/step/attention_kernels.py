"""The kernels that scaled_dot_product_attention may take, by the config's `system.attention`; process-wide in torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from swinmr_profiling.models.errors import ModelError

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
}


def attention_kernels(name: str) -> AbstractContextManager[None]:
    """While it lasts, that one kernel alone; "auto": what is allowed already. What it cannot compute, torch refuses."""
    return nullcontext() if name == "auto" else sdpa_kernel(BACKENDS[name])


def every_attention_kernel() -> AbstractContextManager[None]:
    """Whatever is allowed outside: for shapes that are looked up in another precision."""
    return sdpa_kernel(list(BACKENDS.values()))


def allow_attention_kernels(name: str, device_type: str = "cuda") -> None:
    """As `attention_kernels`, for the rest of the process. Raises ModelError for a kernel that a CPU does not have."""
    if name == "auto":
        return
    if name == "efficient" and device_type == "cpu":
        raise ModelError(
            'system.attention "efficient" is a kernel of CUDA: take "auto", "math" or "flash" on a CPU'
        )
    cuda = torch.backends.cuda
    cuda.enable_math_sdp(name == "math")
    cuda.enable_mem_efficient_sdp(name == "efficient")
    cuda.enable_flash_sdp(name == "flash")
    cuda.enable_cudnn_sdp(False)
