"""A Swin block on a CPU, over runs of windows that fit the cache.

An operator over a whole image writes its result to memory that the system has to hand out page by page, and
the next one reads it back: at 256 x 256 that costs several times the arithmetic. Everything in a block but
the change of order is the same for every window, so that a run of windows can go through the whole block
while it is in cache, and only what the backward pass needs is written out.

Of the backward pass's inputs LayerNorm, GELU and the attention probabilities are computed again instead of
saved: in cache that costs less than the trip to memory. What is saved per token: x, q, k, v, the attended
values, x after attention, the hidden layer and the log sums of attention: 8 C + heads numbers where mlp_ratio
is 2, against 12 C + heads * N.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from swinmr_profiling.models.swin.linear_gradients import LinearGradient, NormedLinearGradient

# Tokens of a run: enough for matrix products to reach their speed, few enough for the largest results (hidden
# layer, attention logits) to stay in a server's second-level cache. The backward pass holds more of them at a
# time. Half or twice as many cost up to 10 %.
INFERENCE_RUN_TOKENS = 2048
TRAINING_RUN_TOKENS = 1024

# A masked weight, exp(-100), is a subnormal number, on which processors are many times slower, and so would its
# products with small gradients be. exp(-40) is far from that, and below the rounding of a sum that is 1.
LEAST_EXPONENT = -40.0

aten = torch.ops.aten


class BlockWeights(NamedTuple):
    """A block's parameters, in the order in which the function below takes and returns them."""

    norm1_weight: Tensor
    norm1_bias: Tensor
    qkv_weight: Tensor
    qkv_bias: Tensor | None
    proj_weight: Tensor
    proj_bias: Tensor
    norm2_weight: Tensor
    norm2_bias: Tensor
    fc1_weight: Tensor
    fc1_bias: Tensor
    fc2_weight: Tensor
    fc2_bias: Tensor

    def cast(self, stream: torch.dtype, product: torch.dtype) -> BlockWeights:
        """For inference: the norms in the dtype of the residual stream, the projections in their own."""
        return BlockWeights._make(
            None if tensor is None else tensor.to(stream if name.startswith("norm") else product)
            for name, tensor in zip(self._fields, self, strict=True)
        )


class Plan(NamedTuple):
    """What a block needs to know beside its weights."""

    heads: int
    tokens: int
    scale: float
    eps: float
    class_sizes: tuple[int, ...]

    def runs(self, run_tokens: int) -> Iterator[tuple[int, int, int]]:
        """(first window, window after the last, mask class), each inside one class."""
        longest = max(1, run_tokens // self.tokens)
        start = 0
        for mask_class, size in enumerate(self.class_sizes):
            stop = start + size
            for first in range(start, stop, longest):
                yield first, min(first + longest, stop), mask_class
            start = stop


def _heads_first(qkv: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, 3 C) -> q, k, v as views (windows, heads, N, d)."""
    qkv = qkv.view(-1, plan.tokens, 3, plan.heads, qkv.shape[-1] // (3 * plan.heads))
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    return query, key, value


def _attend(qkv: Tensor, bias: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """(rows, 3 C) of one mask class, bias (heads, N, N) -> (rows, C), log sums (windows, heads, N).

    The operator behind scaled_dot_product_attention on a CPU: that function keeps the log sums to itself.
    """
    query, key, value = _heads_first(qkv, plan)
    mask = bias[None].to(query.dtype)
    fused = aten._scaled_dot_product_flash_attention_for_cpu
    out, log_sums = fused(query, key, value, attn_mask=mask, scale=plan.scale)
    return out.transpose(1, 2).reshape(qkv.shape[0], -1), log_sums


def blocked_inference(
    x: Tensor, index: Tensor | None, bias: Tensor, weights: BlockWeights, plan: Plan, out: Tensor
) -> Tensor:
    """The block without gradients: x (rows, C), out (rows, C) of other memory.

    index gathers x into the block's order (None: it has it). bias (classes, heads, N, N). The residual stream
    keeps x's dtype, the products are computed in that of the projections.
    """
    w, channels, dtype = weights, x.shape[-1:], weights.qkv_weight.dtype
    for first, last, mask_class in plan.runs(INFERENCE_RUN_TOKENS):
        rows = slice(first * plan.tokens, last * plan.tokens)
        x_run, y = x[rows] if index is None else x.index_select(0, index[rows]), out[rows]
        normed = F.layer_norm(x_run, channels, w.norm1_weight, w.norm1_bias, plan.eps).to(dtype)
        attended, _ = _attend(F.linear(normed, w.qkv_weight, w.qkv_bias), bias[mask_class], plan)
        torch.add(x_run, F.linear(attended, w.proj_weight, w.proj_bias), out=y)
        normed = F.layer_norm(y, channels, w.norm2_weight, w.norm2_bias, plan.eps).to(dtype)
        y += F.linear(F.gelu(F.linear(normed, w.fc1_weight, w.fc1_bias)), w.fc2_weight, w.fc2_bias)
    return out


def _linear_into(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


class BlockedTraining(torch.autograd.Function):
    """The block with gradients for x, the bias and every weight, in one dtype.

    keep_attention and keep_mlp (windows,) scale the two residual branches (stochastic depth), or are None.
    """

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        index: Tensor | None,
        inverse: Tensor | None,
        bias: Tensor,
        keep_attention: Tensor | None,
        keep_mlp: Tensor | None,
        plan: Plan,
        *parameters: Tensor | None,
    ) -> Tensor:
        w = BlockWeights._make(parameters)
        if index is not None:
            x = x.index_select(0, index)
        qkv = x.new_empty(len(x), w.qkv_weight.shape[0])
        log_sums = x.new_empty(sum(plan.class_sizes), plan.heads, plan.tokens)
        hidden = x.new_empty(len(x), w.fc1_weight.shape[0])
        attended, x_middle, y = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
        for first, last, mask_class in plan.runs(TRAINING_RUN_TOKENS):
            rows = slice(first * plan.tokens, last * plan.tokens)
            normed = F.layer_norm(x[rows], x.shape[-1:], w.norm1_weight, w.norm1_bias, plan.eps)
            _linear_into(qkv[rows], normed, w.qkv_weight, w.qkv_bias)
            attended[rows], log_sums[first:last] = _attend(qkv[rows], bias[mask_class], plan)
            _linear_into(x_middle[rows], attended[rows], w.proj_weight, w.proj_bias)
            _add_branch(x_middle[rows], x[rows], keep_attention, slice(first, last))
            normed = F.layer_norm(x_middle[rows], x.shape[-1:], w.norm2_weight, w.norm2_bias, plan.eps)
            _linear_into(hidden[rows], normed, w.fc1_weight, w.fc1_bias)
            _linear_into(y[rows], F.gelu(hidden[rows]), w.fc2_weight, w.fc2_bias)
            _add_branch(y[rows], x_middle[rows], keep_mlp, slice(first, last))
        ctx.plan = plan
        saved = (x, qkv, log_sums, attended, x_middle, hidden, inverse, bias, keep_attention, keep_mlp)
        ctx.save_for_backward(*saved, *parameters)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, qkv, log_sums, attended, x_middle, hidden, inverse, *rest = ctx.saved_tensors
        bias, keep_attention, keep_mlp, *rest = rest
        w, plan = BlockWeights._make(rest), ctx.plan
        of_qkv, of_fc1 = (
            NormedLinearGradient(w.norm1_weight, w.qkv_weight),
            NormedLinearGradient(w.norm2_weight, w.fc1_weight),
        )
        of_proj, of_fc2 = LinearGradient(w.proj_weight), LinearGradient(w.fc2_weight)
        d_bias = torch.zeros_like(bias)
        gradient = gradient.contiguous()
        d_x = torch.empty_like(x)
        for first, last, mask_class in plan.runs(TRAINING_RUN_TOKENS):
            windows, rows = slice(first, last), slice(first * plan.tokens, last * plan.tokens)
            dy = gradient[rows]
            d_hidden = of_fc2.add(_scaled(dy, keep_mlp, windows), F.gelu(hidden[rows]))
            d_hidden = aten.gelu_backward(d_hidden, hidden[rows])
            d_middle = of_fc1.add_normed(d_hidden, x_middle[rows], plan.eps).add_(dy)
            d_attended = of_proj.add(_scaled(d_middle, keep_attention, windows), attended[rows])
            saved = (attended[rows], qkv[rows], log_sums[windows])
            d_qkv = _attention_gradient(d_attended, *saved, bias[mask_class], d_bias[mask_class], plan)
            torch.add(of_qkv.add_normed(d_qkv, x[rows], plan.eps), d_middle, out=d_x[rows])
        if inverse is not None:
            d_x = d_x.index_select(0, inverse)
        d_norm1, (d_qkv_weight, d_qkv_bias) = of_qkv.all_parameters(w.norm1_bias)
        d_norm2, d_fc1 = of_fc1.all_parameters(w.norm2_bias)
        of_weights = (d_qkv_weight, None if w.qkv_bias is None else d_qkv_bias)
        d = (*d_norm1, *of_weights, *of_proj.parameters(), *d_norm2, *d_fc1, *of_fc2.parameters())
        return (d_x, None, None, d_bias, None, None, None, *d)


def _scaled(branch: Tensor, keep: Tensor | None, windows: slice) -> Tensor:
    """Rows (windows * N, C) times one factor per window."""
    if keep is None:
        return branch
    factors = keep[windows]
    return (branch.view(len(factors), -1) * factors[:, None]).view_as(branch)


def _add_branch(branch: Tensor, stream: Tensor, keep: Tensor | None, windows: slice) -> None:
    """branch <- stream + factor * branch."""
    if keep is not None:
        branch.copy_(_scaled(branch, keep, windows))
    branch += stream


def _attention_gradient(
    d_attended: Tensor,
    attended: Tensor,
    qkv: Tensor,
    log_sums: Tensor,
    bias: Tensor,
    d_bias: Tensor,
    plan: Plan,
) -> Tensor:
    """The gradient of one run's (rows, 3 C) qkv; that of the bias (heads, N, N) is added up.

    log_sums (windows, heads, N): of the exponentials of the logits. They, and the sums that the gradient of
    a softmax subtracts, ride along as one more column of the products (Dao et al. 2022, appendix B.4).
    """
    width = qkv.shape[-1] // (3 * plan.heads)

    def in_heads(rows: Tensor) -> Tensor:
        return rows.view(-1, plan.tokens, plan.heads, width).transpose(1, 2)

    def with_column(part: Tensor, column: Tensor | float) -> Tensor:
        joined = part.new_empty(*part.shape[:3], width + 1)
        joined[..., :width] = part
        joined[..., width] = column
        return joined.flatten(0, 1)

    query, key, value = _heads_first(qkv, plan)
    query = with_column(query, -log_sums / plan.scale).mul_(plan.scale)
    key, value = with_column(key, 1.0), with_column(value, 1.0)
    d_out = with_column(in_heads(d_attended), -in_heads(d_attended * attended).sum(-1))
    weights = torch.bmm(query, key.transpose(1, 2))
    shape = (-1, *bias.shape)
    weights.view(shape).add_(bias)
    weights.clamp_min_(LEAST_EXPONENT).exp_()
    d_logits = torch.bmm(d_out, value.transpose(1, 2)).mul_(weights)
    d_bias += d_logits.view(shape).sum(0)
    d_value = torch.bmm(weights.transpose(1, 2), d_out[..., :width])
    d_query = torch.bmm(d_logits, key[..., :width]).mul_(plan.scale)
    d_key = torch.bmm(d_logits.transpose(1, 2), query[..., :width])
    d_qkv = torch.empty_like(qkv)
    for part, of_part in zip(_heads_first(d_qkv, plan), (d_query, d_key, d_value), strict=True):
        part.copy_(of_part.view(part.shape))
    return d_qkv
