"""Which way window attention takes, and the ways themselves. Equal outputs in every one.

Liu et al. 2021, eq. 4: softmax(q k^T / sqrt(d) + bias) v in every window, the bias being a learned one per
relative position plus, after a shift, the mask of the window's class.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from swinmr_profiling.models.recomputation.recomputed_modules import recomputed
from swinmr_profiling.models.stand_in import stands_for

# "matmul"   product, sum, softmax and product as operators of their own.
# "fused"    scaled_dot_product_attention on the head dim as it is.
# "padded"   the same, the head dim filled up with zeros to what CUDA's memory-efficient kernel takes.
# "blocked"  the whole block over runs of windows that fit the processor's cache (models/swin/blocked.py).
ATTENTION_WAYS = ("matmul", "fused", "padded", "blocked")
# What can be asked for, on any device; the last one is the policy's alone.
FORCED_WAYS = ATTENTION_WAYS[:3]

# CUDA's memory-efficient kernel wants rows of a multiple of 16 bytes: 4 numbers in fp32, 8 in half precision.
KERNEL_ROW_BYTES = 16


def attention_policy(
    device_type: str, *, trains: bool, whole: bool = True, traced: bool = False, bias_alone: bool = False
) -> str:
    """The way that attention goes, one of ATTENTION_WAYS.

    trains: gradients are wanted. whole: the block is plain enough to be computed in runs (no hooks, no
    dropout, no autocast in training). traced: torch.compile or a tracer looks on. bias_alone: the bias wants
    a gradient and the queries do not.

    - CUDA: "padded". Flash refuses any mask, cuDNN a trainable one; the memory-efficient kernel takes both,
      at head dims that are a multiple of 4 or 8 (30 and 10 are not). "matmul" for a bias that trains alone,
      which has crashed the kernel.
    - CPU: "blocked": operators over a whole image spend most of their time on memory, not on arithmetic.
      Where that is not possible "fused" without gradients, and "matmul" with them, because the fused kernel
      knows no gradient of the bias there.
    - meta (unless it stands for another device), tracers and other devices: "matmul", which every counter and
      every backend understands.
    """
    device_type = stands_for(device_type)
    if device_type == "cuda":
        return "matmul" if bias_alone else "padded"
    if device_type != "cpu":
        return "matmul"
    if traced or not whole:
        return "matmul" if trains or torch.jit.is_tracing() else "fused"
    return "blocked"


def padded_head_dim(head_dim: int, dtype: torch.dtype) -> int:
    """The next head dim that the memory-efficient kernel takes."""
    multiple = KERNEL_ROW_BYTES // dtype.itemsize
    return -(-head_dim // multiple) * multiple


def matmul_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float, dropout: float
) -> Tensor:
    """(windows, heads, N, d) each, bias (heads, N, N) -> (windows, heads, N, d)."""
    logits = (query * scale) @ key.transpose(-2, -1) + bias
    weights = logits.softmax(dim=-1).to(value.dtype)
    return F.dropout(weights, dropout) @ value


def class_attention(
    qkv: Tensor, bias: Tensor, *, scale: float, dropout: float, way: str, recompute: bool
) -> Tensor:
    """Attention of windows of one mask class: qkv (windows, N, 3, heads, d), bias (heads, N, N).

    Returns (windows, N, heads * d). With recompute the probabilities are computed again in the backward pass,
    which the fused kernels always do.
    """
    # Taken apart where they lie, so that their gradients are put together as the projection wrote them.
    query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
    if way == "matmul":
        out = recomputed(matmul_attention, query, key, value, bias, scale, dropout, when=recompute)
    else:
        mask = bias[None].to(query.dtype)
        out = F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)
    return out.transpose(1, 2).flatten(2)


def pad_heads(parameter: Tensor, head_dim: int, padded: int, dim: int) -> Tensor:
    """Zeros behind every head along one axis of a projection (its length a multiple of head_dim).

    Padding the projections instead of q, k and v costs no pass over the features.
    """
    heads = parameter.unflatten(dim, (-1, head_dim))
    axes_behind = heads.ndim - 2 - dim
    return F.pad(heads, (0, 0) * axes_behind + (0, padded - head_dim)).flatten(dim, dim + 1)
