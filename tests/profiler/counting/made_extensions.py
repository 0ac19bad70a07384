"""Functions and kernels that stand for those of compiled extensions, under their names."""

import numpy as np
import torch
from torch import nn


def kernel(*shape: int) -> torch.Tensor:
    """What a kernel beside the dispatcher returns: allocated by PyTorch, written by nobody that it knows of."""
    out = torch.empty(*shape)
    np.from_dlpack(out.detach())[...] = 1.0
    return out


class SelectiveScanFn(torch.autograd.Function):
    """mamba_ssm: u, delta (B, D, L), A (D, N), B and C (B, N, L), D (D,)."""

    @staticmethod
    def forward(
        ctx, u, delta, a, b, c, d=None, z=None, delta_bias=None, delta_softplus=False, last_state=False
    ):
        ctx.save_for_backward(u, delta, a, b, c, d)
        return kernel(*u.shape)

    @staticmethod
    def backward(ctx, gradient):
        return (*(kernel(*t.shape) for t in ctx.saved_tensors), None, None, None, None)


class MambaInnerFn(torch.autograd.Function):
    """mamba_ssm: xz (B, 2 D, L); the linear layers inside are operators."""

    @staticmethod
    def forward(ctx, xz, conv1d_weight, conv1d_bias, x_proj, delta_proj, out_proj, out_bias, a, b, c, d):
        batch, width, length = xz.shape
        conv = kernel(batch, width // 2, length)
        x_dbl = conv.transpose(1, 2).flatten(0, 1) @ x_proj.T
        delta = x_dbl[:, : delta_proj.shape[1]] @ delta_proj.T
        scanned = kernel(batch, length, width // 2) + delta.view(batch, length, -1)
        return scanned @ out_proj.T

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError


class NeighborhoodAttention2DQKAutogradFunction(torch.autograd.Function):
    """natten: (B, H, X, Y, d) to (B, H, X, Y, kernel squared)."""

    @staticmethod
    def forward(ctx, query, key, bias, kernel_size, dilation):
        query = query.contiguous()
        ctx.save_for_backward(query, key)
        return kernel(*query.shape[:-1], kernel_size**2)

    @staticmethod
    def backward(ctx, gradient):
        return (*(kernel(*t.shape) for t in ctx.saved_tensors), None, None, None)


class NeighborhoodAttention2DAVAutogradFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, attention, value, kernel_size, dilation):
        ctx.save_for_backward(attention, value)
        return kernel(*value.shape)

    @staticmethod
    def backward(ctx, gradient):
        return (*(kernel(*t.shape) for t in ctx.saved_tensors), None, None)


class FusedNeighborhoodAttention2D(torch.autograd.Function):
    """natten: (B, X, Y, H, d)."""

    @staticmethod
    def forward(ctx, query, key, value, bias, kernel_size, dilation, is_causal, scale):
        return kernel(*value.shape)


class FlashAttnFunc(torch.autograd.Function):
    """flash-attn before it registered operators: (B, N, H, d)."""

    @staticmethod
    def forward(ctx, q, k, v, dropout_p, softmax_scale, causal):
        ctx.save_for_backward(q, k, v)
        return kernel(*q.shape[:-1], v.shape[-1])

    @staticmethod
    def backward(ctx, gradient):
        return (*(kernel(*t.shape) for t in ctx.saved_tensors), None, None, None)


class FlashAttnVarlenFunc(torch.autograd.Function):
    """flash-attn: (tokens of all, H, d) with cumulative lengths."""

    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p):
        return kernel(*q.shape)


class FlashAttnQKVPackedFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv, dropout_p, softmax_scale, causal):
        return kernel(*qkv.shape[:2], *qkv.shape[3:])


class FlashAttnKVPackedFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, dropout_p, softmax_scale, causal):
        return kernel(*q.shape)


class _fMHA(torch.autograd.Function):  # noqa: N801 - xformers' own name
    @staticmethod
    def forward(ctx, op, query, key, value, attn_bias, p, scale):
        return kernel(*query.shape[:-1], value.shape[-1])


class MSDeformAttnFunction(torch.autograd.Function):
    """Deformable DETR: value (B, keys, H, d), locations (B, Nq, H, levels, points, 2), weights without the 2."""

    @staticmethod
    def forward(ctx, value, shapes, starts, locations, weights, im2col_step):
        return kernel(value.shape[0], weights.shape[1], value.shape[2] * value.shape[3])


class CausalConv1dFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None, activation=None):
        return kernel(*x.shape)


class SomebodysFn(torch.autograd.Function):
    """An extension that nobody knows."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return kernel(*x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return kernel(*gradient.shape)


class InNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values = x.numpy()
        return torch.from_numpy(values @ values)


class OfOperators(torch.autograd.Function):
    """All its work is operators', also into memory that it allocates and that they write."""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty(x.shape[0], x.shape[0])
        torch.mm(x, x.T, out=out)
        pieces = torch.empty_like(out)
        pieces[:1] = out[:1]
        pieces[1:].copy_(out[1:])
        return pieces + torch.empty(0, x.shape[0]).sum()


class Calls(nn.Module):
    def __init__(self, function, *arguments):
        super().__init__()
        self.function, self.arguments = function, arguments

    def forward(self, *inputs):
        return self.function(*inputs, *self.arguments)


def tensors(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones(*shape) for shape in shapes)


CUMULATIVE = torch.tensor([0, 3, 8])


# name: (function, inputs, further arguments, kind, MACs as they are derived)
KNOWN = {
    # B D L N: y = C h is a product of N numbers for each of 2 x 6 x 5.
    "selective scan": (
        SelectiveScanFn,
        tensors((2, 6, 5), (2, 6, 5), (6, 4), (2, 4, 5), (2, 4, 5), (6,)),
        (),
        "other",
        2 * 6 * 5 * 4,
    ),
    # QK: 2 x 3 heads x 7 x 7 places x 9 neighbours x 8 wide; AV the same.
    "natten scores": (
        NeighborhoodAttention2DQKAutogradFunction,
        tensors((2, 3, 7, 7, 8), (2, 3, 7, 7, 8)),
        (None, 3, 1),
        "attention",
        2 * 3 * 7 * 7 * 9 * 8,
    ),
    "natten values": (
        NeighborhoodAttention2DAVAutogradFunction,
        tensors((2, 3, 7, 7, 9), (2, 3, 7, 7, 8)),
        (3, 1),
        "attention",
        2 * 3 * 7 * 7 * 9 * 8,
    ),
    "natten fused, 3 by 5": (
        FusedNeighborhoodAttention2D,
        tensors((2, 7, 6, 3, 8), (2, 7, 6, 3, 8), (2, 7, 6, 3, 8)),
        (None, (3, 5), (1, 1), (False, False), 1.0),
        "attention",
        2 * 7 * 6 * 3 * (3 * 5) * (8 + 8),
    ),
    "flash-attn": (
        FlashAttnFunc,
        tensors((2, 10, 4, 16), (2, 7, 4, 16), (2, 7, 4, 16)),
        (0.0, None, False),
        "attention",
        17_920,
    ),
    # 3 x 3 + 5 x 5 pairs, 2 heads, 16 + 16 wide.
    "flash-attn, packed sequences": (
        FlashAttnVarlenFunc,
        (*tensors((8, 2, 16), (8, 2, 16), (8, 2, 16)), CUMULATIVE, CUMULATIVE),
        (5, 5, 0.0),
        "attention",
        (9 + 25) * 2 * 32,
    ),
    "flash-attn, one tensor": (
        FlashAttnQKVPackedFunc,
        tensors((2, 10, 3, 4, 16)),
        (0.0, None, False),
        "attention",
        2 * 4 * 10 * 10 * 32,
    ),
    "flash-attn, keys and values in one": (
        FlashAttnKVPackedFunc,
        tensors((2, 10, 4, 16), (2, 7, 2, 4, 16)),
        (0.0, None, False),
        "attention",
        17_920,
    ),
    "xformers": (
        lambda q, k, v: _fMHA.apply("cutlass", q, k, v, None, 0.0, None),
        tensors((2, 10, 4, 16), (2, 7, 4, 16), (2, 7, 4, 16)),
        (),
        "attention",
        17_920,
    ),
    # 2 x 9 queries x 4 heads x 3 levels x 5 points, each of 8 numbers.
    "deformable attention": (
        MSDeformAttnFunction,
        (
            *tensors((2, 84, 4, 8)),
            torch.tensor([[8, 8], [4, 4], [2, 2]]),
            torch.tensor([0, 64, 80]),
            *tensors((2, 9, 4, 3, 5, 2), (2, 9, 4, 3, 5)),
        ),
        (64,),
        "attention",
        2 * 9 * 4 * 3 * 5 * 8,
    ),
    "causal convolution": (
        CausalConv1dFn,
        tensors((2, 6, 5), (6, 4)),
        (None, None),
        "convolution",
        2 * 6 * 5 * 4,
    ),
}
