"""Compiled extensions: operators of other libraries by name, and functions whose kernels no dispatcher sees.

Many extensions are called from the ``forward`` of a ``torch.autograd.Function`` and bypass PyTorch's dispatcher. What
they leave is memory that was allocated in that forward, that no operator wrote, and that is read (see storages.py).
Where the function's name is known here, a formula says how much it multiplied; else it is listed.

Sources are named at the formulas. None of these libraries need be installed; names are their own.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import Work
from swinmr_profiling.profiler.counting.formulas.attention import attention_bnhd, dense_bnhd


class HiddenFunction(NamedTuple):
    """kind: one of KINDS. forward: formula(None, *args) of the arguments of ``apply``, for what no operator shows.

    backward: how many products of the forward's size the gradients take; ``again``: how many more of them are computed
    a second time instead of being kept.
    """

    kind: str
    forward: Callable[..., Work]
    backward: int = 2
    again: float = 0


def selective_scan(out: Any, u: Tensor, delta: Tensor, a: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Mamba (Gu and Dao 2023, algorithm 2): y_t = C_t h_t, a product of N numbers for each of B D L: B D L N.

    u (B, D, L), a (D, N). The recurrence h_t = A_t h_{t-1} + B_t u_t is elementwise: ``selective_scan_ref`` of
    mamba_ssm, written in PyTorch, counts the same. (VMamba's figure of 9 B D L N is FLOPs of everything in it.)
    """
    return u.numel() * a.shape[-1]


def mamba_inner(out: Any, xz: Tensor, conv1d_weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Mamba's fused block, but its three linear layers, which are operators: the depthwise convolution and the scan.

    xz (B, 2 D, L), conv1d_weight (D, 1, width); A (D, N) is the first matrix behind out_proj_weight and its bias.
    """
    elements = xz.numel() // 2
    return {"convolution": elements * conv1d_weight.shape[-1], "other": elements * int(args[5].shape[-1])}


def causal_conv1d(out: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Work:
    """causal-conv1d: x (B, D, L) by weight (D, width), depthwise: B D L width."""
    return x.numel() * weight.shape[-1]


def neighbourhood_scores(out: Any, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Work:
    """NATTEN (Hassani et al. 2023): (B, H, spatial, d), every query meets as many keys as the kernel has places."""
    return query.numel() * _places(args, query.dim() - 3)


def _places(args: Any, dims: int) -> int:
    """Places of the kernel, which is the first argument behind the tensors: of each side, or of all."""
    kernel = next(a for a in args if isinstance(a, int) or (isinstance(a, (tuple, list)) and len(a) > 0))
    return kernel**dims if isinstance(kernel, int) else prod(kernel)


def neighbourhood_values(out: Any, attention: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Work:
    """NATTEN: weights (..., kernel) by the values of the neighbourhood; weights x d."""
    return attention.numel() * value.shape[-1]


def neighbourhood_attention(
    out: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """NATTEN, fused, (B, spatial, H, d): B spatial H kernel (d_k + d_v); the kernel is shifted at borders, not cut."""
    return prod(query.shape[:-1]) * _places(args, query.dim() - 3) * (query.shape[-1] + value.shape[-1])


def deformable_attention(out: Any, value: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Deformable DETR (Zhu et al. 2021, equation 3): weights (B, Nq, H, levels, points) by sampled values of d.

    value (B, Nk, H, d). Sampling is interpolation and no MAC; offsets and weights come from linear layers outside.
    """
    # In the order of all its copies: value, spatial shapes, level starts, sampling locations, attention weights.
    weights: Tensor = args[3]
    return weights.numel() * value.shape[-1]


def packed_qkv(out: Any, qkv: Tensor, *args: Any, **kwargs: Any) -> Work:
    """flash-attn on (B, N, 3, H, d): one tensor for queries, keys and values."""
    if qkv.dim() != 5:
        return None  # packed sequences, whose lengths are values
    batch, tokens, _, heads, width = qkv.shape
    return 2 * batch * heads * tokens * tokens * width


def packed_kv(out: Any, q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Work:
    """flash-attn on q (B, Nq, H, d) and (B, Nk, 2, H, d)."""
    return 2 * q.numel() * kv.shape[1] if kv.dim() == 5 else None


def of_inputs(out: Any, inp: Tensor, *args: Any, **kwargs: Any) -> Work:
    """xformers' ``_fMHA.apply(op, query, key, value, ...)``: the operator comes before (B, N, H, d) or (B, N, d)."""
    q, k, v = [a for a in (inp, *args) if isinstance(a, Tensor)][:3]
    return prod(q.shape[:-1]) * k.shape[1] * (q.shape[-1] + v.shape[-1])


def _fused(forward: Callable[..., Work]) -> HiddenFunction:
    """Fused attention keeps no scores: of the forward's two products its backward computes the first again."""
    return HiddenFunction("attention", forward, again=0.5)


FUNCTIONS: dict[str, HiddenFunction] = {
    # mamba_ssm, mamba.py's copies, VMamba (https://github.com/state-spaces/mamba)
    "SelectiveScanFn": HiddenFunction("other", selective_scan),
    "MambaInnerFn": HiddenFunction("other", mamba_inner),
    "CausalConv1dFn": HiddenFunction("convolution", causal_conv1d),
    # natten (https://natten.org)
    **{
        f"NeighborhoodAttention{n}D{what}AutogradFunction": HiddenFunction("attention", formula)
        for n in (1, 2, 3)
        for what, formula in (("QK", neighbourhood_scores), ("AV", neighbourhood_values))
    },
    **{
        name: _fused(neighbourhood_attention)
        for name in [
            "FusedNeighborhoodAttention1D",
            "FusedNeighborhoodAttention2D",
            "FusedNeighborhoodAttention3D",
            "CutlassFnaGenericAutogradFn",
            "CutlassHopperFnaGenericAutogradFn",
            "CutlassBlackwellFnaGenericAutogradFn",
        ]
    },
    # flash-attn (https://github.com/Dao-AILab/flash-attention), versions whose kernels are not operators
    "FlashAttnFunc": _fused(dense_bnhd),
    "FlashAttnKVPackedFunc": _fused(packed_kv),
    "FlashAttnQKVPackedFunc": _fused(packed_qkv),
    "FlashAttnVarlenFunc": _fused(attention_bnhd),
    # xformers (https://facebookresearch.github.io/xformers), where its kernels are not operators
    "_fMHA": _fused(of_inputs),
    # Deformable DETR, mmcv, GroundingDINO, Mask2Former, DINO
    "MSDeformAttnFunction": HiddenFunction("attention", deformable_attention),
    "MultiScaleDeformableAttnFunction": HiddenFunction("attention", deformable_attention),
    "MultiScaleDeformableAttnFunction_fp32": HiddenFunction("attention", deformable_attention),
    "MultiScaleDeformableAttnFunction_fp16": HiddenFunction("attention", deformable_attention),
}
