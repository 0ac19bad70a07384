"""MACs of attention operators, from shapes: (B, H, N, d) queries, keys and values unless a docstring says otherwise.

The handles' signature and unit are those of the folder's. Masks are not discounted: causal attention counts in full.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from swinmr_profiling.profiler.counting.formulas import NeedsValuesError, Work
from swinmr_profiling.profiler.counting.formulas.products import numel_of_matrices


def attention_macs(q_shape: Sequence[int], k_shape: Sequence[int], v_shape: Sequence[int]) -> int:
    """B Hq Nq Nk (d_k + d_v) for (..., H, N, d) shapes. Grouped-query attention counts the query's heads."""
    return prod(q_shape[:-1]) * k_shape[-2] * (q_shape[-1] + v_shape[-1])


def attention(out: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Every scaled_dot_product variant, and flex attention: (B, H, N, d), masks not discounted."""
    return attention_macs(q.shape, k.shape, v.shape)


def _backward_work(
    score_count: int, d_k: int, d_v: int, want_qkv: Sequence[bool] = (True, True, True)
) -> Work:
    """Four products: dV = P'dO and dP = dO V' (d_v each), dQ = dS K and dK = dS'Q (d_k each).

    A fused backward computes the scores Q K' again: a fifth product, which is recomputation and not the
    model's.
    """
    want_q, want_k, want_v = want_qkv
    macs = score_count * (d_v * (int(want_v) + int(want_q or want_k)) + d_k * (int(want_q) + int(want_k)))
    return {"attention": macs, "recomputed": score_count * d_k}


def attention_backward(
    out: Any, grad_out: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """Backward of the fused kernels on (B, H, N, d): 2 x forward, and Q K' once more as recomputation."""
    want = kwargs.get("grad_input_mask")
    if want is None:
        # The memory-efficient and overrideable kernels take the mask by position, as the only list of bools.
        want = next((a for a in args if isinstance(a, (list, tuple)) and a and isinstance(a[0], bool)), None)
    want = (True, True, True) if want is None else tuple(want[:3])
    return _backward_work(prod(q.shape[:-1]) * k.shape[-2], q.shape[-1], v.shape[-1], want)


def flex_attention_backward(out: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Work:
    """Backward of flex attention; the gradient comes after out and logsumexp."""
    return _backward_work(prod(q.shape[:-1]) * k.shape[-2], q.shape[-1], v.shape[-1])


def _score_count_bnhd(q: Tensor, k: Tensor, cum_q: Any, cum_k: Any) -> int:
    """Scores of attention on (B, N, H, d), or on packed (total, H, d) sequences with cumulative lengths."""
    if cum_q is None:
        return prod(q.shape[:-1]) * k.shape[-3]
    cum_k = cum_q if cum_k is None else cum_k
    if cum_q.is_meta or cum_k.is_meta:
        raise NeedsValuesError("the lengths of packed sequences are values")
    pairs = (cum_q.diff() * cum_k.diff()).sum()
    return int(pairs) * q.shape[-2]


def attention_bnhd(
    out: Any, q: Tensor, k: Tensor, v: Tensor, cum_q: Any = None, cum_k: Any = None, *args: Any, **kwargs: Any
) -> Work:
    """_flash_attention_forward: heads after tokens."""
    return _score_count_bnhd(q, k, cum_q, cum_k) * (q.shape[-1] + v.shape[-1])


def efficient_attention_bnhd(
    out: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    *args: Any,
    **kw: Any,
) -> Work:
    """_efficient_attention_forward: heads after tokens, a bias before the lengths."""
    return attention_bnhd(out, q, k, v, cu_seqlens_q, cu_seqlens_k)


def attention_bnhd_backward(
    out: Any,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Any,
    lse: Any,
    cum_q: Any = None,
    cum_k: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """_flash_attention_backward."""
    return _backward_work(_score_count_bnhd(q, k, cum_q, cum_k), q.shape[-1], v.shape[-1])


def efficient_attention_bnhd_backward(
    out: Any,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any,
    o: Any,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """_efficient_attention_backward."""
    return attention_bnhd_backward(out, grad, q, k, v, o, None, cu_seqlens_q, cu_seqlens_k)


def dense_bnhd_backward(
    out: Any, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any
) -> Work:
    """flash-attn's backward on (B, N, H, d)."""
    return attention_bnhd_backward(out, grad, q, k, v, None, None)


def varlen_bnhd_backward(
    out: Any,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Any,
    lse: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    cum_q: Any,
    cum_k: Any,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """flash-attn's backward on packed sequences: the gradients to be filled come before the lengths."""
    return attention_bnhd_backward(out, grad, q, k, v, o, lse, cum_q, cum_k)


def cutlass_backward(
    out: Any,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any,
    cum_q: Any,
    cum_k: Any,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """xformers' memory-efficient backward: the lengths come right after the bias."""
    return attention_bnhd_backward(out, grad, q, k, v, None, None, cum_q, cum_k)


def flash_attention_3(
    out: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_new: Any,
    v_new: Any,
    q_v: Any,
    o: Any,
    cum_q: Any = None,
    cum_k: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """flash-attn 3: (B, N, H, d), or packed with lengths; None with a cache of keys, whose filling is a value."""
    return attention_bnhd(out, q, k, v, cum_q, cum_k) if k_new is None else None


def multi_head_attention(
    out: Any,
    q_bnd: Tensor,
    k_bnd: Tensor,
    v_bnd: Tensor,
    embed_dim: Any,
    num_heads: Any,
    qkv_weight: Any,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """_native_multi_head_attention, MultiheadAttention's fast path without gradients.

    Projections: N_q D^2 in and out for the query, N_k D^2 for key and value each; products: 2 N_q N_k D.
    """
    batch, n_q, _ = q_bnd.shape
    n_k = k_bnd.shape[1]
    return {
        "linear": batch * (2 * n_q + 2 * n_k) * embed_dim**2,
        "attention": 2 * batch * n_q * n_k * embed_dim,
    }


def transformer_encoder_layer(out: Any, src_bnd: Tensor, embed_dim: Any, *args: Any, **kwargs: Any) -> Work:
    """_transformer_encoder_layer_fwd, the encoder's fast path: attention block and feed-forward."""
    batch, tokens, _ = src_bnd.shape
    # In order: qkv, output projection, first and second feed-forward layer. The masks that follow the weights
    # are boolean or as wide as the tokens, so the four are taken from their fixed places.
    matrices = (args[1], args[3], args[12], args[14])
    return {
        "linear": batch * tokens * numel_of_matrices(matrices),
        "attention": 2 * batch * tokens * tokens * embed_dim,
    }


# Formulas that read cumulative lengths where they are given: another input, other lengths.
READS_LENGTHS = frozenset(
    {
        attention_bnhd,
        efficient_attention_bnhd,
        attention_bnhd_backward,
        efficient_attention_bnhd_backward,
        varlen_bnhd_backward,
        cutlass_backward,
        flash_attention_3,
    }
)
