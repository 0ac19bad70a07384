"""MACs of single operators, from shapes alone.

Unit: one MAC is one multiply-add of a matrix product, convolution or attention product (FLOPs = 2 x MACs).
Bias, activation, normalisation, softmax and interpolation are never counted here; masks are not discounted;
the zeros that pad a convolution are counted. A complex multiply-add counts as one.

Every handle has the signature ``handle(out, *args, **kwargs)``: the operator's result, then its arguments as
the dispatcher passed them. It returns the MACs as an int, or a dict from kind ("linear", "attention",
"recomputed", ...) to MACs where one operator does several kinds of work, or None where the shapes do not tell
(the call is then listed as uncounted). Handles read shapes and never values, so that they work on meta
tensors; the packed variable-length attentions are the exception, which need the sequence lengths.
"""

from collections.abc import Iterable, Sequence
from math import prod

import torch

Work = int | dict[str, int] | None


def numel_of_matrices(tensors: Iterable[torch.Tensor | None]) -> int:
    """Elements of the 2-D tensors of a flat weight list (biases are 1-D)."""
    return sum(t.numel() for t in tensors if t is not None and t.dim() == 2)


# Matrix products


def mm(out, a_mk, b_kn, *args, **kwargs) -> Work:
    """m n k; also n k products of a batch: (..., m, k) @ (..., k, n)."""
    return a_mk.numel() * b_kn.shape[-1]


def addmm(out, bias, a_mk, b_kn, *args, **kwargs) -> Work:
    """m n k, or b m n k for baddbmm and addbmm; the added matrix is not counted."""
    return a_mk.numel() * b_kn.shape[-1]


def mv(out, a_mn, x_n, *args, **kwargs) -> Work:
    """numel(A)."""
    return a_mn.numel()


def addmv(out, bias, a_mn, x_n, *args, **kwargs) -> Work:
    """numel(A)."""
    return a_mn.numel()


def dot(out, x_n, y_n, *args, **kwargs) -> Work:
    """n."""
    return x_n.numel()


def foreach_mm(out, a_list, b_list, *args, **kwargs) -> Work:
    """The sum of m n k over the pairs of the lists."""
    return sum(a.numel() * b.shape[-1] for a, b in zip(a_list, b_list, strict=True))


def grouped_mm(out, a, b, *args, **kwargs) -> Work:
    """Products of groups cut out of one dimension (mixture of experts); the offsets themselves do not matter.

    (rows, k) x (g, k, n): every row meets one group; (g, m, k) x (g, k, n): a batch; (m, k) x (k, n) with k
    cut: one product in g pieces; (g, m, k) x (k, cols) with cols cut: every column meets one group.
    """
    if a.dim() == 3 and b.dim() == 2:
        return a.shape[-2] * a.shape[-1] * b.shape[-1]
    return a.numel() * b.shape[-1]


def linear(out, x, *args, **kwargs) -> Work:
    """numel(x) out_features. The weight is not read: packed and quantized ones hide their shape."""
    return x.numel() * out.shape[-1]


def linear_backward_weights(out, grad_output, x, weight, *args, **kwargs) -> Work:
    """One product of the size of the forward's."""
    return x.numel() * weight.shape[0]


def linear_backward_input(out, input_size, grad_output, weight, *args, **kwargs) -> Work:
    """One product of the size of the forward's."""
    return grad_output.numel() * weight.shape[-1]


def linear_backward(out, x, grad_output, weight, output_mask, *args, **kwargs) -> Work:
    """One product of the size of the forward's for each of the input's and the weight's gradient."""
    return x.numel() * weight.shape[0] * (int(output_mask[0]) + int(output_mask[1]))


def matmul_backward(out, grad, a, b, mask, *args, **kwargs) -> Work:
    """One product of the size of the forward's for each gradient asked for."""
    return grad.numel() * a.shape[-1] * (int(mask[0]) + int(mask[1]))


# Convolutions


def convolution_macs(
    x_shape: Sequence[int], weight_numel: int, out_shape: Sequence[int], transposed: bool
) -> int:
    """N prod(output spatial) numel(W); for a transposed convolution N prod(input spatial) numel(W).

    Grouping needs no factor: a grouped weight (C_out, C_in / groups, ...) already has 1 / groups of the
        elements.
    """
    spatial = x_shape[2:] if transposed else out_shape[2:]
    return x_shape[0] * prod(spatial) * weight_numel


def convolution(out, x, weight, bias, stride, padding, dilation, transposed, *args, **kwargs) -> Work:
    """Any dimension, grouped or not, transposed or not."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed)


def plain_convolution(out, x, weight, *args, **kwargs) -> Work:
    """Operators of one backend that cannot transpose."""
    return convolution_macs(x.shape, weight.numel(), _first(out).shape, transposed=False)


def plain_transposed_convolution(out, x, weight, *args, **kwargs) -> Work:
    """Operators of one backend that only transpose."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed=True)


def unbatched_convolution(out, x, weight, *args, **kwargs) -> Work:
    """slow_conv* take (C, spatial) and (N, C, spatial): outputs per channel times numel(W)."""
    channels = out.shape[weight.dim() * -1 + 1]
    return out.numel() // channels * weight.numel()


def conv_tbc(out_tbo, x_tbc, weight_kco, *args, **kwargs) -> Work:
    """Time-batch-channel convolution: T_out B numel(W)."""
    return out_tbo.shape[0] * out_tbo.shape[1] * weight_kco.numel()


def packed_convolution(out, x, packed, *args, **kwargs) -> Work:
    """Quantized convolutions: the packed parameters unpack to the weight."""
    return convolution_macs(x.shape, packed.unpack()[0].numel(), out.shape, transposed=False)


def packed_transposed_convolution(out, x, packed, *args, **kwargs) -> Work:
    """Quantized transposed convolutions."""
    return convolution_macs(x.shape, packed.unpack()[0].numel(), out.shape, transposed=True)


def convolution_backward(
    out,
    grad,
    x,
    weight,
    bias_sizes,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
) -> Work:
    """The forward's MACs once for the input's and once for the weight's gradient, grouped or not."""
    return convolution_macs(x.shape, weight.numel(), grad.shape, transposed) * sum(map(int, output_mask[:2]))


def deform_conv2d(out, x, weight, *args, **kwargs) -> Work:
    """N prod(output spatial) numel(W); sampling the input is interpolation and not counted."""
    return convolution_macs(x.shape, weight.numel(), out.shape, transposed=False)


def deform_conv2d_backward(out, grad, x, weight, *args, **kwargs) -> Work:
    """Weight gradient and column gradient, each of the forward's size."""
    return 2 * convolution_macs(x.shape, weight.numel(), grad.shape, transposed=False)


# Attention


def attention_macs(q_shape: Sequence[int], k_shape: Sequence[int], v_shape: Sequence[int]) -> int:
    """B Hq Nq Nk (d_k + d_v) for (..., H, N, d) shapes. Grouped-query attention counts the query's heads."""
    return prod(q_shape[:-1]) * k_shape[-2] * (q_shape[-1] + v_shape[-1])


def attention(out, q, k, v, *args, **kwargs) -> Work:
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


def attention_backward(out, grad_out, q, k, v, *args, **kwargs) -> Work:
    """Backward of the fused kernels on (B, H, N, d): 2 x forward, and Q K' once more as recomputation."""
    want = kwargs.get("grad_input_mask")
    if want is None:
        # The memory-efficient and overrideable kernels take the mask by position, as the only list of bools.
        want = next((a for a in args if isinstance(a, (list, tuple)) and a and isinstance(a[0], bool)), None)
    want = (True, True, True) if want is None else tuple(want[:3])
    return _backward_work(prod(q.shape[:-1]) * k.shape[-2], q.shape[-1], v.shape[-1], want)


def flex_attention_backward(out, q, k, v, *args, **kwargs) -> Work:
    """Backward of flex attention; the gradient comes after out and logsumexp."""
    return _backward_work(prod(q.shape[:-1]) * k.shape[-2], q.shape[-1], v.shape[-1])


def _score_count_bnhd(q, k, cum_q, cum_k) -> int | None:
    """Scores of attention on (B, N, H, d), or on packed (total, H, d) sequences with cumulative lengths."""
    if cum_q is None:
        return prod(q.shape[:-1]) * k.shape[-3]
    cum_k = cum_q if cum_k is None else cum_k
    if cum_q.is_meta or cum_k.is_meta:
        return None
    pairs = (cum_q.diff() * cum_k.diff()).sum()
    return int(pairs) * q.shape[-2]


def attention_bnhd(out, q, k, v, cum_q=None, cum_k=None, *args, **kwargs) -> Work:
    """_flash_attention_forward: heads after tokens."""
    scores = _score_count_bnhd(q, k, cum_q, cum_k)
    return None if scores is None else scores * (q.shape[-1] + v.shape[-1])


def efficient_attention_bnhd(
    out, q, k, v, bias=None, cu_seqlens_q=None, cu_seqlens_k=None, *args, **kw
) -> Work:
    """_efficient_attention_forward: heads after tokens, a bias before the lengths."""
    return attention_bnhd(out, q, k, v, cu_seqlens_q, cu_seqlens_k)


def attention_bnhd_backward(out, grad, q, k, v, o, lse, cum_q=None, cum_k=None, *args, **kwargs) -> Work:
    """_flash_attention_backward."""
    scores = _score_count_bnhd(q, k, cum_q, cum_k)
    return None if scores is None else _backward_work(scores, q.shape[-1], v.shape[-1])


def efficient_attention_bnhd_backward(
    out, grad, q, k, v, bias, o, cu_seqlens_q=None, cu_seqlens_k=None, *args, **kwargs
) -> Work:
    """_efficient_attention_backward."""
    return attention_bnhd_backward(out, grad, q, k, v, o, None, cu_seqlens_q, cu_seqlens_k)


def multi_head_attention(out, q_bnd, k_bnd, v_bnd, embed_dim, num_heads, qkv_weight, *args, **kwargs) -> Work:
    """_native_multi_head_attention, MultiheadAttention's fast path without gradients.

    Projections: N_q D^2 in and out for the query, N_k D^2 for key and value each; products: 2 N_q N_k D.
    """
    if q_bnd.is_nested or k_bnd.is_nested:
        return None
    batch, n_q, _ = q_bnd.shape
    n_k = k_bnd.shape[1]
    return {
        "linear": batch * (2 * n_q + 2 * n_k) * embed_dim**2,
        "attention": 2 * batch * n_q * n_k * embed_dim,
    }


def transformer_encoder_layer(out, src_bnd, embed_dim, *args, **kwargs) -> Work:
    """_transformer_encoder_layer_fwd, the encoder's fast path: attention block and feed-forward."""
    if src_bnd.is_nested:
        return None
    batch, tokens, _ = src_bnd.shape
    # In order: qkv, output projection, first and second feed-forward layer. The masks that follow the weights
    # are boolean or as wide as the tokens, so the four are taken from their fixed places.
    matrices = (args[1], args[3], args[12], args[14])
    return {
        "linear": batch * tokens * numel_of_matrices(matrices),
        "attention": 2 * batch * tokens * tokens * embed_dim,
    }


# Recurrent layers


def rnn_macs(step_count: int, matrix_numel: int) -> int:
    """T B x the elements of the 2-D weights: input, hidden and projection matrices meet every token once."""
    return step_count * matrix_numel


def rnn_flat_weights(out, x, weights, *args, **kwargs) -> Work:
    """cuDNN and MIOpen: (T, B, C) or packed (tokens, C) input and every layer's weights in one list."""
    return rnn_macs(x.numel() // x.shape[-1], numel_of_matrices(weights))


def rnn_flat_weights_backward(out, x, weights, weight_stride0, *args, **kwargs) -> Work:
    """2 x forward, less what output_mask (input, hx, cx, weights) leaves out.

    Without the input's gradient the first layer's input matrices are met once: weights[0], and in a
    bidirectional layer that of the other direction, weight_stride0 places on.
    """
    bidirectional, output_mask = args[-5], args[-1]
    steps = x.numel() // x.shape[-1]
    macs = rnn_macs(steps, numel_of_matrices(weights)) * (1 + int(output_mask[3]))
    if not output_mask[0]:
        first = weights[: weight_stride0 * (2 if bidirectional else 1) : weight_stride0]
        macs -= rnn_macs(steps, numel_of_matrices(first))
    return macs


def lstm_mps(out, x, hx, weights, *args, **kwargs) -> Work:
    """The forward on Apple GPUs; the weights follow the states."""
    return rnn_macs(x.numel() // x.shape[-1], numel_of_matrices(weights))


def mkldnn_rnn_layer(out, x, weight_ih, weight_hh, *args, **kwargs) -> Work:
    """One layer in one direction: T B (numel(W_ih) + numel(W_hh))."""
    return rnn_macs(x.numel() // x.shape[-1], weight_ih.numel() + weight_hh.numel())


def mkldnn_rnn_layer_backward(out, x, weight_ih, weight_hh, *args, **kwargs) -> Work:
    """2 x forward: the operator has no mask and always computes the input's gradient too."""
    return 2 * rnn_macs(x.numel() // x.shape[-1], weight_ih.numel() + weight_hh.numel())


# Others


def trilinear(out, i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim=1) -> Work:
    """torch.nn.functional.bilinear and its gradients: two batched products, (i1 i2) and then with i3.

    Bilinear of (N, a), (N, b) to c features: N c a b for the first, N c b for the second.
    """
    axes = range(i1.dim() + len(expand1))
    sizes = [_broadcast_sizes(t, expand, axes) for t, expand in ((i1, expand1), (i2, expand2), (i3, expand3))]
    first = [max(a, b) for a, b in zip(sizes[0], sizes[1], strict=True)]
    summed_first = {axis for axis in sumdim if axis in expand3}
    buffer = [1 if axis in summed_first else first[axis] for axis in axes]
    return prod(first) + prod(max(a, b) for a, b in zip(buffer, sizes[2], strict=True))


def _broadcast_sizes(tensor: torch.Tensor, expand: Sequence[int], axes: range) -> list[int]:
    remaining = iter(tensor.shape)
    return [1 if axis in expand else next(remaining) for axis in axes]


def cdist(out, x1, x2, p=2.0, compute_mode=None, *args, **kwargs) -> Work:
    """B P R d where torch computes Euclidean distances by a matrix product, 0 where it takes differences.

    The rule is torch's own: p = 2 and (mode 1, or the default mode with more than 25 rows on a side). The two
    columns it appends to add the squared norms are additions and not counted.
    """
    rows = max(x1.shape[-2], x2.shape[-2])
    by_product = p == 2 and (compute_mode == 1 or (compute_mode in (None, 0) and rows > 25))
    return out.numel() * x1.shape[-1] if by_product else 0


def euclidean_dist(out, x1, x2) -> Work:
    """B P R d: the distance by a matrix product."""
    return out.numel() * x1.shape[-1]


def cdist_backward(out, grad, x1, x2, *args, **kwargs) -> Work:
    """Differences weighted element by element: no matrix product."""
    return 0


def _first(out):
    return out[0] if isinstance(out, (tuple, list)) else out
