"""Compiled extensions: by name where they are known, listed where they are not, never nothing.

The stand-ins take the arguments of the real functions and do the work where no operator is seen: in NumPy, into memory
that was only allocated, as the kernels of the real ones do on a GPU.
"""

import numpy as np
import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import (
    count_forward,
    count_training_step,
    forward_backward,
    register_formula,
)
from swinmr_profiling.profiler.counting.components.component_mode import ComponentMode
from swinmr_profiling.profiler.counting.components.component_tracker import ComponentTracker
from swinmr_profiling.profiler.counting.operators.extensions import FUNCTIONS
from swinmr_profiling.profiler.counting.operators.operator_table import COUNTED


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


@pytest.mark.parametrize("name", KNOWN)
def test_known_functions_count_by_name(name):
    function, inputs, arguments, kind, macs = KNOWN[name]
    call = function.apply if isinstance(function, type) else function
    report = count_forward(Calls(call, *arguments), inputs)
    assert report.macs == report.by_kind[kind] == macs
    assert report.uncounted_operators == {}
    assert report.by_module["own"] == {kind: macs}


def test_a_selective_scan_counts_as_its_reference_in_pytorch():
    def reference(u, delta, a, b, c, d):
        """``selective_scan_ref`` of mamba_ssm, its core."""
        decay = torch.exp(torch.einsum("bdl,dn->bdln", delta, a))
        drive = torch.einsum("bdl,bnl,bdl->bdln", delta, b, u)
        state, ys = a.new_zeros((u.shape[0], *a.shape)), []
        for step in range(u.shape[2]):
            state = decay[:, :, step] * state + drive[:, :, step]
            ys.append(torch.einsum("bdn,bn->bd", state, c[:, :, step]))
        return torch.stack(ys, dim=2) + u * d[:, None]

    _, inputs, _, _, macs = KNOWN["selective scan"]
    assert count_forward(Calls(reference), inputs).macs == macs


def test_mambas_block_counts_its_linear_layers_as_operators_and_the_rest_by_name():
    batch, width, length, states, rank, taps, out = 2, 6, 5, 4, 3, 2, 7
    inputs = tensors(
        (batch, 2 * width, length), (width, 1, taps), (width,), (rank + 2 * states, width), (width, rank),
        (out, width), (out,), (width, states), (1,), (1,), (width,),
    )  # fmt: skip
    report = count_forward(Calls(MambaInnerFn.apply), inputs)
    tokens = batch * length
    assert report.by_kind["linear"] == tokens * (width * (rank + 2 * states) + rank * width + width * out)
    assert report.by_kind["convolution"] == tokens * width * taps
    assert report.by_kind["other"] == tokens * width * states
    assert report.uncounted_operators == {}


def test_the_backward_of_a_known_function_counts_too():
    # Forward, then dQ, dK, dV and dP: two products of each; the scores again.
    inputs = tuple(t.requires_grad_() for t in tensors((2, 10, 4, 16), (2, 7, 4, 16), (2, 7, 4, 16)))
    report = count_training_step(forward_backward, Calls(FlashAttnFunc.apply, 0.0, None, False), inputs)
    assert report.macs == 3 * 17_920
    assert report.recomputed_macs == 17_920 // 2
    assert report.uncounted_operators == {}
    scan = tuple(t.requires_grad_() for t in KNOWN["selective scan"][1])
    report = count_training_step(forward_backward, Calls(SelectiveScanFn.apply), scan)
    assert (report.macs, report.recomputed_macs) == (3 * 2 * 6 * 5 * 4, 0)


def test_gradients_of_an_extension_that_are_used_on_are_not_listed_where_it_is_known():
    layer = nn.Linear(16, 16)

    def network(x):
        q = layer(x).view(2, 10, 4, 4)
        return FlashAttnFunc.apply(q, q, q, 0.0, None, False)

    module = Calls(network)
    module.layer = layer
    report = count_training_step(forward_backward, module, tensors((2, 10, 16)))
    assert report.uncounted_operators == {}
    # The layer: forward and weight gradient, 20 x 16 x 16 each; attention 2 x 4 x 10 x 10 x 8, three times.
    assert report.macs == 2 * 20 * 16 * 16 + 3 * 2 * 4 * 10 * 10 * 8


def test_a_function_that_nobody_knows_is_listed():
    report = count_forward(Calls(SomebodysFn.apply), tensors((4, 4)))
    assert (report.macs, report.uncounted_operators) == (0, {"unseen::SomebodysFn": 1})


def test_a_formula_for_a_function_of_ones_own():
    register_formula("function::SomebodysFn", lambda out, x: x.numel() * x.shape[-1], kind="linear")
    try:
        x = torch.ones(4, 4, requires_grad=True)
        report = count_training_step(forward_backward, Calls(SomebodysFn.apply), (x,))
    finally:
        del FUNCTIONS["SomebodysFn"]
    assert (report.macs, report.by_kind["linear"], report.uncounted_operators) == (3 * 64, 3 * 64, {})


def test_a_function_that_works_in_numpy_is_listed():
    report = count_forward(Calls(InNumpy.apply), tensors((4, 4)))
    assert (report.macs, report.uncounted_operators) == (0, {"unseen::Tensor.numpy": 1})


def test_what_a_function_does_inside_is_listed_once_as_its():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return kernel(*x.shape) * x

    def twice(x):
        return Inner.apply(x) + Inner.apply(x)

    report = count_forward(Calls(twice), tensors((4, 4)))
    assert report.uncounted_operators == {"unseen::Inner": 2}


def test_a_kernel_without_a_function_is_listed_by_the_code_that_allocated():
    report = count_forward(Calls(lambda x: kernel(4, 4) + x), tensors((4, 4)))
    assert report.uncounted_operators == {"unseen::test_extensions.kernel": 1}


def test_what_a_network_returns_counts_as_read():
    report = count_forward(Calls(lambda x: kernel(4, 4)), tensors((4, 4)))
    assert report.uncounted_operators == {"unseen::test_extensions.kernel": 1}


def test_the_gradient_of_an_unknown_function_is_listed():
    x = torch.ones(4, 4, requires_grad=True)
    report = count_training_step(forward_backward, Calls(lambda x: SomebodysFn.apply(x * 2)), (x,))
    assert report.uncounted_operators == {"unseen::SomebodysFn": 1, "unseen::SomebodysFn.backward": 1}


def test_a_function_of_operators_alone_is_not_listed():
    report = count_forward(Calls(OfOperators.apply), tensors((4, 6)))
    assert (report.macs, report.uncounted_operators) == (4 * 6 * 4, {})


def test_values_that_leave_for_another_library_are_listed():
    before = dict(vars(torch.Tensor))

    def forward(x):
        there = np.from_dlpack(x.detach())
        return torch.from_numpy(there @ there)

    report = count_forward(Calls(forward), tensors((4, 4)))
    assert (report.macs, report.uncounted_operators) == (0, {"unseen::Tensor.__dlpack__": 1})
    assert dict(vars(torch.Tensor)) == before


def test_values_that_leave_for_numpy_are_listed_and_constants_are_not():
    leaves = count_forward(Calls(lambda x: x + torch.from_numpy(x.numpy() * 2)), tensors((4, 4)))
    assert leaves.uncounted_operators == {"unseen::Tensor.numpy": 1}
    constant = torch.ones(4, 4)
    stays = count_forward(Calls(lambda x: x @ torch.from_numpy(constant.numpy())), tensors((4, 4)))
    assert (stays.macs, stays.uncounted_operators) == (64, {})


def test_afterwards_pytorch_is_as_it_was():
    with pytest.raises(ZeroDivisionError):
        count_forward(Calls(lambda x: 1 // 0), tensors((1,)))
    count_forward(Calls(SomebodysFn.apply), tensors((4, 4)))
    assert not {"numpy", "tolist"} & vars(torch.Tensor).keys()


LIBRARY = torch.library.Library("flash_attn", "DEF")
OTHERS = [
    torch.library.Library(name, "DEF") for name in ("xformers", "xformers_flash", "DaoAILab", "bitsandbytes")
]
OTHERS.append(torch.library.Library("torchao", "DEF"))
NAMESPACES = {library.ns: library for library in (LIBRARY, *OTHERS)}
# Schemas as the libraries have them; kernels that give results of the right shape.
OPERATORS = {
    "flash_attn::_flash_attn_forward(Tensor q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool causal) "
    "-> Tensor": lambda q, k, v, *_: torch.zeros_like(q),
    "flash_attn::_flash_attn_varlen_forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "int max_seqlen_q, int max_seqlen_k, float dropout_p) -> Tensor": lambda q, *_: torch.zeros_like(q),
    "flash_attn::_flash_attn_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
    "Tensor(a!)? dq, Tensor(b!)? dk, Tensor(c!)? dv, float dropout_p) -> Tensor": lambda d, q, *_: (
        torch.zeros_like(q)
    ),
    "xformers::efficient_attention_forward_cutlass(Tensor query, Tensor key, Tensor value, Tensor? bias, "
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, int? max_seqlen_q, int? max_seqlen_k, float dropout_p, "
    "int custom_mask_type) -> Tensor": lambda q, *_: torch.zeros_like(q),
    "xformers_flash::flash_fwd(Tensor query, Tensor key, Tensor value, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "Tensor? seqused_k, int max_seqlen_q) -> Tensor": lambda q, *_: torch.zeros_like(q),
    "DaoAILab::_causal_conv1d_fwd_cpp(Tensor x, Tensor weight, Tensor? bias, Tensor? seq_idx, Tensor? initial_states, "
    "Tensor(a!) out, Tensor(b!)? final_states_out, bool silu_activation) -> ()": lambda x, w, b, s, i, out, *_: (
        None
    ),
    "bitsandbytes::int8_linear_matmul(Tensor A, Tensor B) -> Tensor": (
        lambda a, b: torch.zeros(*a.shape[:-1], b.shape[0], dtype=torch.int32, device=a.device)
    ),
    "bitsandbytes::int8_linear_matmul.out(Tensor A, Tensor B, Tensor(a!) out) -> ()": lambda a, b, out: None,
    "bitsandbytes::gemv_4bit(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int blocksize) -> Tensor": (
        lambda a, b, shape, *_: torch.zeros(*a.shape[:-1], shape[0], device=a.device)
    ),
    "torchao::int_scaled_matmul(Tensor a, Tensor b, Tensor scales1) -> Tensor": (
        lambda a, b, s: torch.zeros(a.shape[0], b.shape[1], device=a.device)
    ),
}
for schema, implementation in OPERATORS.items():
    namespace, _, rest = schema.partition("::")
    NAMESPACES[namespace].define(rest)
    NAMESPACES[namespace].impl(rest.partition("(")[0], implementation, "CompositeExplicitAutograd")


def packed_weight(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows * columns // 2, 1, dtype=torch.uint8)


ops = torch.ops
BY_OPERATOR = {
    "flash-attn": (lambda q, k, v: ops.flash_attn._flash_attn_forward(q, k, v, 0.0, 1.0, False), 17_920),
    "xformers, cutlass": (
        lambda q, k, v: ops.xformers.efficient_attention_forward_cutlass(
            q, k, v, None, None, None, None, None, 0.0, 0
        ),
        17_920,
    ),
    "xformers, flash": (lambda q, k, v: ops.xformers_flash.flash_fwd(q, k, v, None, None, None, 10), 17_920),
    "flash-attn, backward": (
        lambda q, k, v: ops.flash_attn._flash_attn_backward(q, q, k, v, q, q, None, None, None, 0.0),
        # Outside of a training step what a fused backward computes again is work like any other: five products.
        5 * 17_920 // 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_OPERATOR)
def test_extensions_that_are_operators_count_by_name(name):
    function, macs = BY_OPERATOR[name]
    report = count_forward(Calls(function), tensors((2, 10, 4, 16), (2, 7, 4, 16), (2, 7, 4, 16)))
    assert (report.macs, report.by_kind["attention"], report.uncounted_operators) == (macs, macs, {})


def test_packed_sequences_of_an_operator_run_for_real_and_say_that_values_decide():
    def network(q, lengths):
        return ops.flash_attn._flash_attn_varlen_forward(q, q, q, lengths, lengths, 5, 5, 0.0)

    report = count_forward(Calls(network), (torch.ones(8, 2, 16), CUMULATIVE))
    assert (report.macs, report.counted_on) == ((9 + 25) * 2 * 32, "cpu")
    assert "another input can give another count" in report.note


INT8 = torch.ones(5, 16, dtype=torch.int8)
QUANTISED = {
    "_int_mm": (
        lambda x: torch._int_mm(x, torch.ones(16, 8, dtype=torch.int8, device=x.device)),
        torch.ones(32, 16, dtype=torch.int8),
        32 * 16 * 8,
    ),
    "_scaled_mm": (
        lambda x: torch._scaled_mm(
            x.to(torch.float8_e4m3fn),
            torch.ones(16, 32, device=x.device).to(torch.float8_e4m3fn).t(),
            torch.ones((), device=x.device),
            torch.ones((), device=x.device),
            out_dtype=torch.bfloat16,
        ),
        torch.ones(32, 32),
        32 * 32 * 16,
    ),
    "int8 weights": (
        lambda x: torch._weight_int8pack_mm(
            x,
            torch.ones(8, 16, dtype=torch.int8, device=x.device),
            torch.ones(8, device=x.device, dtype=x.dtype),
        ),
        torch.ones(5, 16, dtype=torch.bfloat16),
        5 * 16 * 8,
    ),
    "int4 weights, packed": (
        lambda x: torch._weight_int4pack_mm_for_cpu(
            x,
            torch._convert_weight_to_int4pack_for_cpu(
                torch.ones(32, 64, dtype=torch.int32, device=x.device), 1
            ),
            32,
            torch.ones(2, 32, 2, dtype=x.dtype, device=x.device),
        ),
        torch.ones(5, 64, dtype=torch.bfloat16),
        5 * 64 * 32,
    ),
    "bitsandbytes, int8": (
        lambda x: ops.bitsandbytes.int8_linear_matmul(
            x, torch.ones(8, 16, dtype=torch.int8, device=x.device)
        ),
        INT8,
        5 * 16 * 8,
    ),
    "bitsandbytes, int8 into a result": (
        lambda x: ops.bitsandbytes.int8_linear_matmul.out(
            x, torch.ones(8, 16, dtype=torch.int8, device=x.device), x.new_zeros(5, 8)
        ),
        INT8,
        5 * 16 * 8,
    ),
    "bitsandbytes, 4 bit": (
        lambda x: ops.bitsandbytes.gemv_4bit(x, packed_weight(8, 16), [8, 16], x, x, 64),
        torch.ones(1, 16),
        16 * 8,
    ),
    "torchao, int8": (
        lambda x: ops.torchao.int_scaled_matmul(
            x, torch.ones(16, 8, dtype=torch.int8, device=x.device), x[:, :1]
        ),
        INT8,
        5 * 16 * 8,
    ),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_products_count(name):
    function, x, macs = QUANTISED[name]
    report = count_forward(Calls(function), (x,))
    assert (report.macs, report.by_kind["linear"], report.uncounted_operators) == (macs, macs, {})


def test_a_causal_convolution_as_an_operator_counts():
    def network(x, weight):
        out = torch.empty_like(x)
        ops.DaoAILab._causal_conv1d_fwd_cpp(x, weight, None, None, None, out, None, False)
        return out * 1

    report = count_forward(Calls(network), tensors((2, 6, 5), (6, 4)))
    assert (report.macs, report.uncounted_operators) == (2 * 6 * 5 * 4, {})


def test_names_of_five_families_are_known():
    for family in (
        "SelectiveScanFn",
        "NeighborhoodAttention1DQK",
        "FlashAttnFunc",
        "_fMHA",
        "MSDeformAttnFunction",
    ):
        assert any(name.startswith(family) for name in FUNCTIONS)
    for prefix in ("flash_attn::", "xformers::", "torchao::", "bitsandbytes::", "flash_attn_3::"):
        assert any(name.startswith(prefix) for name in COUNTED)


def test_memory_that_a_product_is_handed_with_a_beta_of_0_is_not_read():
    def scores(beta):
        # What diffusers' plain attention does: baddbmm wants a tensor to add to, and multiplies it by 0.
        return lambda x: torch.baddbmm(torch.empty(1, 4, 4, device=x.device), x, x, beta=beta)

    report = count_forward(Calls(scores(0)), tensors((1, 4, 4)))
    assert (report.macs, report.uncounted_operators) == (4 * 4 * 4, {})
    report = count_forward(Calls(scores(1)), tensors((1, 4, 4)))
    assert (report.macs, len(report.uncounted_operators)) == (4 * 4 * 4, 1)


def test_attention_of_a_function_of_the_user_s_runs_without_compilation():
    from torch.nn.attention.flex_attention import flex_attention

    query = torch.randn(1, 2, 16, 8)
    mode = ComponentMode(ComponentTracker({"network": nn.Identity()}))
    with torch.no_grad(), mode:
        result = flex_attention(query, query, query)
    assert result.shape == query.shape
    # Two products of 16 x 16 x 8 for each of 2 heads.
    assert mode.tallies.by_operator == {"higher_order::flex_attention": 2 * 2 * 16 * 16 * 8}
