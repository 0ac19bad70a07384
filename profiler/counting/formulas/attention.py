"""MACs of attention operators, from shapes: (B, H, N, d) queries, keys and values unless a docstring says otherwise.

The handles' signature and unit are those of the folder's. Masks are not discounted: causal attention counts in full.
"""

from collections.abc import Callable, Sequence
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
    return int((cum_q.diff() * cum_k.diff()).sum()) * q.shape[-2]


def _bnhd(queries: int, lengths: int | None, *, backward: bool = False) -> Callable[..., Work]:
    """The handle of a kernel whose heads come after the tokens: (B, N, H, d), or packed (total, H, d) sequences.

    Args:
        queries: place of the queries among the arguments, which keys and values follow.
        lengths: place of the cumulative lengths of queries, which those of keys follow, where the kernel has them.
    """

    def formula(out: Any, *args: Any, **kwargs: Any) -> Work:
        q, k, v = args[queries : queries + 3]
        cum_q, cum_k = (None, None) if lengths is None else (*args[lengths : lengths + 2], None, None)[:2]
        score_count = _score_count_bnhd(q, k, cum_q, cum_k)
        if backward:
            return _backward_work(score_count, q.shape[-1], v.shape[-1])
        return int(score_count * (q.shape[-1] + v.shape[-1]))

    return formula


# (q, k, v, lengths ...): _flash_attention_forward, and flash-attn on packed sequences.
attention_bnhd = _bnhd(0, 3)
# A bias before the lengths: _efficient_attention_forward.
efficient_attention_bnhd = _bnhd(0, 4)
# flash-attn without lengths.
dense_bnhd = _bnhd(0, None)
# (grad, q, k, v, out, logsumexp, lengths ...) of _flash_attention_backward, (grad, q, k, v, bias, out, lengths ...) of
# _efficient_attention_backward.
attention_bnhd_backward = _bnhd(1, 6, backward=True)
dense_bnhd_backward = _bnhd(1, None, backward=True)
# flash-attn's on packed sequences: the gradients to be filled come before the lengths.
varlen_bnhd_backward = _bnhd(1, 9, backward=True)
# xformers' memory-efficient backward: the lengths come right after the bias.
cutlass_backward = _bnhd(1, 5, backward=True)


def flash_attention_3(
    out: Any, q: Tensor, k: Tensor, v: Tensor, k_new: Any, *args: Any, **kwargs: Any
) -> Work:
    """flash-attn 3: (B, N, H, d), or packed with lengths; None with a cache of keys, whose filling is a value.

    New keys and values, the queries' values and the result come before the lengths.
    """
    return attention_bnhd(out, q, k, v, *args[3:5]) if k_new is None else None


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
        varlen_bnhd_backward,
        cutlass_backward,
        flash_attention_3,
    }
)
