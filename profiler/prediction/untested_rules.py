"""What a prediction takes from sources and no GPU has confirmed yet; in the profile, and printed with --verbose.

Those that a network's own peak rests on are in its `rests_on.untested` (peak_basis.py) and always printed.
"""

from __future__ import annotations

UNTESTED_RULES = (
    "size of the CUDA context, and of the kernels a run loads into it",
    "cuBLAS workspaces of torch 2.5 and newer, and which release first shares them with cublasLt",
    "cuDNN workspaces of 16-bit convolutions: from one card with cudnn.benchmark on, forward passes only",
    "cuDNN workspaces of fp32 convolutions, and the spike of cudnn.benchmark: not in the prediction",
    "cuFFT workspaces of losses on k-space and of data consistency: not in the prediction",
    "the attention kernel that is really picked, and what its backward pass uses beside its results",
    "temporaries of CUDA's backward kernels of LayerNorm, GroupNorm and sums",
    "sort buffers of the relative position bias's backward pass (index_put with accumulation)",
    "expandable segments' reserved bytes, and what is unmapped near the limit",
    "bf16 and fp16: casts kept by autocast, and GradScaler's scalars",
    "DistributedDataParallel's buckets",
)
