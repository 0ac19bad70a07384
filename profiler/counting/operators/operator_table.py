"""Which operator costs what: three exact-name sets, as data.

*Counted* operators have a kind and a formula; *free* ones are known to contain no matrix product, convolution
or attention product (``free_operators.py``); every other operator is *unknown*: it is executed, counted as
nothing and listed in the report, whatever goes into it. Names are the dispatcher's without
the overload ("aten::mm" stands for mm and mm.out) and are compared whole: "aten::addmm" says nothing about
"aten::_addmm_x".

Composite operators are in no set: the engine takes them apart into the operators below.
"""

from collections.abc import Callable
from typing import NamedTuple

from swinmr_profiling.profiler.counting.formulas import Work
from swinmr_profiling.profiler.counting.formulas import attention as a
from swinmr_profiling.profiler.counting.formulas import convolutions as c
from swinmr_profiling.profiler.counting.formulas import geometry as g
from swinmr_profiling.profiler.counting.formulas import products as p
from swinmr_profiling.profiler.counting.formulas import recurrent as r
from swinmr_profiling.profiler.counting.operators import extensions as e

KINDS = ("convolution", "linear", "attention", "recurrent", "other")

# A batched product is a linear layer where one side is a weight and an attention product where both are
# computed; only the engine can tell, so the table says "product".
PRODUCT = "product"


class CountedOperator(NamedTuple):
    """kind: one of KINDS or PRODUCT, for handles that return an int; formula: see formulas/."""

    kind: str
    formula: Callable[..., Work]


def _table(kind: str, formula: Callable[..., Work], names: str) -> dict[str, CountedOperator]:
    return {name: CountedOperator(kind, formula) for name in names.split()}


COUNTED: dict[str, CountedOperator] = {
    # Matrix products
    **_table("linear", p.mm, "aten::mm aten::_int_mm aten::_scaled_mm aten::_scaled_mm_v2"),
    **_table("linear", p.addmm, "aten::addmm aten::addmm_ aten::_addmm_activation"),
    **_table("linear", p.mv, "aten::mv"),
    **_table("linear", p.addmv, "aten::addmv aten::addmv_"),
    **_table("linear", p.foreach_mm, "aten::_foreach_mm"),
    **_table(
        "linear", p.grouped_mm, "aten::_grouped_mm aten::_scaled_grouped_mm aten::_scaled_grouped_mm_v2"
    ),
    **_table("other", p.mv, "aten::dot aten::vdot"),
    **_table(PRODUCT, p.mm, "aten::bmm"),
    **_table(PRODUCT, p.addmm, "aten::baddbmm aten::baddbmm_ aten::addbmm aten::addbmm_"),
    **_table("linear", p.matmul_backward, "aten::matmul_backward"),
    # Linear layers of one backend, packed and quantized ones
    **_table(
        "linear",
        p.linear,
        """aten::linear aten::mkldnn_linear mkldnn::_linear_pointwise mkl::_mkl_linear
        aten::_mixed_dtypes_linear aten::_weight_int8pack_mm aten::_weight_int4pack_mm
        aten::_weight_int4pack_mm_for_cpu aten::_weight_int4pack_mm_with_scales_and_zeros
        aten::_dyn_quant_matmul_4bit onednn::qlinear_pointwise onednn::linear_dynamic_fp16
        onednn::linear_relu_dynamic_fp16 quantized::linear quantized::linear_relu quantized::linear_tanh
        quantized::linear_leaky_relu quantized::linear_dynamic quantized::linear_relu_dynamic
        quantized::linear_dynamic_fp16 quantized::linear_relu_dynamic_fp16""",
    ),
    # torchao and bitsandbytes, whose weights are (out, in), packed, or of the shape that the operator is told
    **_table("linear", p.mm, "torchao::int_matmul torchao::int_scaled_matmul"),
    **_table(
        "linear",
        p.linear,
        """torchao::da8w4_linear_cpu torchao::float8_linear_cpu torchao::rowwise_scaled_linear_cutlass_s8s4
        torchao::rowwise_scaled_linear_cutlass_s4s4 torchao::rowwise_scaled_linear_sparse_cutlass_f8f8
        torchao::_linear_8bit_act_1bit_weight torchao::_linear_8bit_act_2bit_weight
        torchao::_linear_8bit_act_3bit_weight torchao::_linear_8bit_act_4bit_weight
        torchao::_linear_8bit_act_5bit_weight torchao::_linear_8bit_act_6bit_weight
        torchao::_linear_8bit_act_7bit_weight torchao::_linear_8bit_act_8bit_weight torchao::marlin_24_gemm
        bitsandbytes::int8_linear_matmul bitsandbytes::int8_scaled_mm bitsandbytes::int8_mixed_scaled_mm
        bitsandbytes::gemv_4bit bitsandbytes::gemm_4bit""",
    ),
    **_table(
        "linear",
        p.linear_cross_entropy,
        """torch_nn::_linear_cross_entropy_batch_chunked
        torch_nn::_linear_cross_entropy_batch_chunked_no_reduction""",
    ),
    **_table("linear", p.third_is_input, "torchao::quant_llm_linear"),
    **_table("attention", a.attention, "torchao::qscaled_dot_product"),
    **_table("linear", p.linear_backward, "aten::linear_backward aten::mkldnn_linear_backward"),
    **_table("linear", p.linear_backward_input, "aten::mkldnn_linear_backward_input"),
    **_table("linear", p.linear_backward_weights, "aten::mkldnn_linear_backward_weights"),
    # Convolutions
    **_table(
        "convolution", c.convolution, "aten::convolution aten::_convolution aten::convolution_overrideable"
    ),
    **_table(
        "convolution",
        c.plain_convolution,
        """aten::mkldnn_convolution aten::cudnn_convolution aten::cudnn_convolution_relu
        aten::cudnn_convolution_add_relu aten::miopen_convolution aten::miopen_convolution_relu
        aten::miopen_convolution_add_relu aten::miopen_depthwise_convolution aten::_mps_convolution
        aten::_nnpack_spatial_convolution mkldnn::_convolution_pointwise mkldnn::_convolution_pointwise_""",
    ),
    **_table(
        "convolution",
        c.plain_transposed_convolution,
        """aten::cudnn_convolution_transpose aten::miopen_convolution_transpose
        aten::_mps_convolution_transpose mkldnn::_convolution_transpose_pointwise""",
    ),
    **_table(
        "convolution",
        c.unbatched_convolution,
        """aten::_slow_conv2d_forward aten::slow_conv3d_forward aten::slow_conv_dilated2d
        aten::slow_conv_dilated3d aten::_conv_depthwise2d aten::conv_depthwise3d""",
    ),
    **_table("convolution", c.conv_tbc, "aten::conv_tbc"),
    **_table(
        "convolution",
        c.packed_convolution,
        """quantized::conv1d quantized::conv1d_relu quantized::conv1d_dynamic quantized::conv2d
        quantized::conv2d_relu quantized::conv2d_add quantized::conv2d_add_relu quantized::conv2d_dynamic
        quantized::conv3d quantized::conv3d_relu quantized::conv3d_dynamic""",
    ),
    **_table(
        "convolution",
        c.packed_transposed_convolution,
        "quantized::conv_transpose1d quantized::conv_transpose2d quantized::conv_transpose3d",
    ),
    **_table("convolution", c.convolution_backward, "aten::convolution_backward"),
    # Sampling the input is interpolation and not counted.
    **_table("convolution", c.plain_convolution, "torchvision::deform_conv2d"),
    **_table("convolution", c.deform_conv2d_backward, "torchvision::_deform_conv2d_backward"),
    # Attention: every backend that scaled_dot_product_attention may choose
    **_table(
        "attention",
        a.attention,
        """aten::_scaled_dot_product_flash_attention_for_cpu aten::_scaled_dot_product_flash_attention
        aten::_scaled_dot_product_efficient_attention aten::_scaled_dot_product_cudnn_attention
        aten::_scaled_dot_product_fused_attention_overrideable
        aten::_scaled_dot_product_attention_math_for_mps aten::_triton_scaled_dot_attention
        aten::_cudnn_attention_forward higher_order::flex_attention""",
    ),
    **_table(
        "attention",
        a.attention_backward,
        """aten::_scaled_dot_product_flash_attention_for_cpu_backward
        aten::_scaled_dot_product_flash_attention_backward
        aten::_scaled_dot_product_efficient_attention_backward
        aten::_scaled_dot_product_cudnn_attention_backward aten::_cudnn_attention_backward
        aten::_scaled_dot_product_fused_attention_overrideable_backward""",
    ),
    **_table("attention", a.flex_attention_backward, "higher_order::flex_attention_backward"),
    **_table("attention", a.attention_bnhd, "aten::_flash_attention_forward"),
    **_table("attention", a.efficient_attention_bnhd, "aten::_efficient_attention_forward"),
    **_table(
        "attention",
        a.attention_bnhd_backward,
        "aten::_flash_attention_backward aten::_efficient_attention_backward xformers_flash::flash_bwd",
    ),
    **_table(
        "attention",
        a.multi_head_attention,
        "aten::_native_multi_head_attention aten::_triton_multi_head_attention",
    ),
    **_table("attention", a.transformer_encoder_layer, "aten::_transformer_encoder_layer_fwd"),
    # flash-attn, xformers, causal-conv1d, where their kernels are operators (see extensions.py for the others)
    **_table("attention", a.dense_bnhd, "flash_attn::_flash_attn_forward"),
    **_table(
        "attention", a.attention_bnhd, "flash_attn::_flash_attn_varlen_forward xformers_flash::flash_fwd"
    ),
    **_table("attention", a.flash_attention_3, "flash_attn_3::fwd"),
    **_table("attention", a.dense_bnhd_backward, "flash_attn::_flash_attn_backward"),
    **_table("attention", a.varlen_bnhd_backward, "flash_attn::_flash_attn_varlen_backward"),
    **_table("attention", a.efficient_attention_bnhd, "xformers::efficient_attention_forward_cutlass"),
    **_table("attention", a.cutlass_backward, "xformers::efficient_attention_backward_cutlass"),
    **_table("convolution", e.causal_conv1d, "DaoAILab::_causal_conv1d_fwd_cpp"),
    # Recurrent layers
    **_table("recurrent", r.rnn_flat_weights, "aten::_cudnn_rnn aten::miopen_rnn"),
    **_table("recurrent", r.rnn_flat_weights_backward, "aten::_cudnn_rnn_backward aten::miopen_rnn_backward"),
    **_table("recurrent", r.mkldnn_rnn_layer, "aten::mkldnn_rnn_layer"),
    **_table("recurrent", r.mkldnn_rnn_layer_backward, "aten::mkldnn_rnn_layer_backward"),
    **_table("recurrent", r.lstm_mps, "aten::_lstm_mps"),
    # Others
    **_table("other", g.trilinear, "aten::_trilinear"),
    **_table("other", g.affine_grid, "aten::affine_grid_generator aten::cudnn_affine_grid_generator"),
    **_table("other", g.affine_grid_backward, "aten::cudnn_affine_grid_generator_backward"),
    **_table("other", g.cdist, "aten::_cdist_forward"),
    **_table("other", g.euclidean_dist, "aten::_euclidean_dist"),
    **_table("other", g.cdist_backward, "aten::_cdist_backward"),
}


def register_formula(operator: str, formula: Callable[..., Work], kind: str = "other") -> None:
    """Teach the counter an operator of your own, for the rest of the process.

    Args:
        operator: the dispatcher's name without the overload, such as "mylib::my_op" for an operator made by
            ``torch.library.custom_op("mylib::my_op", ...)``; or "function::MyFunction" for a
            ``torch.autograd.Function`` of that name whose kernels are not operators (listed as
            "unseen::MyFunction"). Its formula gets None and the arguments of ``apply``; its backward counts twice.
        formula: ``formula(out, *args, **kwargs) -> int``, the MACs (one multiply-add each, not FLOPs) of one
            call, from the shapes of its result and arguments. It must not read values: they may be meta
            tensors. Return 0 for an operator without matrix products, a dict from kind to MACs for one with
            several, None where the shapes do not tell. Where a complex tensor goes in, the counter takes the
            figure four times: count a complex multiply-add as one, of a complex and a real number as a half.
        kind: the kind its MACs are listed under, one of KINDS.

    Raises:
        ValueError: the name has no namespace, or the kind is none of KINDS.

        >>> register_formula("mylib::my_op", lambda out, x, weight: x.numel() * weight.shape[0],
        kind="linear")
    """
    namespace, separator, name = operator.partition("::")
    if not (namespace and separator and name) or "." in name:
        raise ValueError(
            f"operator name {operator!r}: expected 'namespace::name' without an overload, as 'aten::mm'"
        )
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} of {operator}: expected one of {', '.join(KINDS)}")
    if namespace == "function":
        e.FUNCTIONS[name] = e.HiddenFunction(kind, formula)
    else:
        COUNTED[operator] = CountedOperator(kind, formula)
