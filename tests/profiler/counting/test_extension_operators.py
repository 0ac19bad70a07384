"""Compiled extensions that register operators: counted by name, quantised and packed ones too."""

import pytest
import torch

from swinmr_profiling.profiler.counting import (
    count_forward,
)
from swinmr_profiling.profiler.counting.operators.extensions import FUNCTIONS
from swinmr_profiling.profiler.counting.operators.operator_table import COUNTED
from tests.profiler.counting.made_extensions import CUMULATIVE, Calls, tensors

LIBRARY = torch.library.Library("flash_attn", "DEF")


OTHERS = [
    torch.library.Library(name, "DEF")
    for name in ("xformers", "xformers_flash", "DaoAILab", "bitsandbytes", "torchao")
]


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
