"""Operators known to contain no matrix product, convolution or attention product, and what they cost instead.

Data only, by exact name. Each group has a rule of ``elementwise.py`` by which the work it does is estimated;
that estimate is reported apart (``elementwise_flops``, ``softmax_macs``) and never enters ``macs``.
``with_inplace`` adds the name with a trailing underscore for operators that have such a twin; a name that
does not exist does no harm.
"""

from typing import NamedTuple


class FreeGroup(NamedTuple):
    """rule: "none", "output", "input", "source", "bag", "window", "pairs", "fft", "softmax" or "lists"; factor: FLOPs
    per element of that rule."""

    rule: str
    factor: int
    names: str
    with_inplace: bool = False
    namespace: str = "aten"


FREE_GROUPS = (
    # Views, shapes and metadata: no arithmetic and no traffic.
    FreeGroup(
        "none",
        0,
        """_conj _neg_view _reshape_alias _unsafe_view alias as_strided detach diagonal expand lift lift_fresh
        permute real imag select slice split split_with_sizes squeeze t transpose unbind unfold unsafe_split
        unsafe_split_with_sizes unsqueeze view view_as_complex view_as_real _nested_view_from_buffer
        _nested_view_from_jagged slice_inverse _fw_primal _make_dual chunk narrow _mkldnn_transpose
        values indices _values _indices crow_indices col_indices ccol_indices row_indices
        _nested_get_values""",
        with_inplace=True,
    ),
    FreeGroup(
        "none",
        0,
        """_assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async
        _functional_assert_scalar _has_same_storage_numel _local_scalar_dense _is_all_true _is_any_true _print
        _make_dep_token _use_cudnn_ctc_loss _use_miopen_ctc_loss _fused_sdp_choice _linalg_check_errors
        _version equal allclose is_coalesced is_pinned is_same_size is_set_to is_nonzero record_stream set
        set_ resize resize_ resize_as resize_as_ _resize_output _resize_output_ dense_dim sparse_dim _nnz
        _dimI _dimV qscheme q_scale q_zero_point q_per_channel_axis q_per_channel_scales
        q_per_channel_zero_points sym_constrain_range sym_constrain_range_for_size
        _functional_sym_constrain_range _functional_sym_constrain_range_for_size shallow_copy_data_
        _debug_has_internal_overlap item can_cast result_type size stride storage_offset numel dim sym_size
        sym_stride sym_numel sym_storage_offset is_contiguous sym_is_contiguous is_strides_like_format
        is_non_overlapping_and_dense _nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets
        _nested_get_offsets _nested_get_lengths _nested_get_ragged_idx _nested_get_min_seqlen
        _nested_get_max_seqlen _nested_get_jagged_dummy _nested_compute_contiguous_strides_offsets
        segment_lengths _validate_compressed_sparse_indices""",
    ),
    # Creation and random numbers.
    FreeGroup(
        "none",
        0,
        """arange empty empty_like empty_permuted empty_quantized empty_strided _efficientzerotensor eye
        fft_fftfreq fft_rfftfreq from_file full full_like linspace logspace new_empty new_empty_strided
        new_full new_ones new_zeros _new_zeros_with_same_feature_meta ones ones_like rand rand_like randint
        randint_like randn randn_like randperm range scalar_tensor tril_indices triu_indices zeros zeros_like
        zero fill bartlett_window blackman_window hamming_window hann_window kaiser_window bernoulli binomial
        cauchy exponential geometric log_normal multinomial normal normal_functional poisson random uniform
        _sample_dirichlet _standard_gamma _standard_gamma_grad _dirichlet_grad _philox_key_fold_in
        _philox_key_split _philox_normal _philox_uniform _cudnn_init_dropout_state _empty_affine_quantized
        _empty_per_channel_affine_quantized _sparse_coo_tensor_with_dims
        _sparse_coo_tensor_with_dims_and_tensors _sparse_compressed_tensor_with_dims sparse_coo_tensor
        sparse_compressed_tensor""",
        with_inplace=True,
    ),
    # Copies, casts, layout changes, indexing, padding, sorting and searching: traffic, no arithmetic.
    FreeGroup(
        "none",
        0,
        """_cast_Byte _conj_copy _copy_from _copy_from_and_resize _fw_primal_copy _indices_copy _lazy_clone
        _make_dual_copy _mkldnn_reshape _neg_view_copy _nested_get_values_copy _nested_view_from_buffer_copy
        _nested_view_from_jagged_copy _pin_memory _reshape_alias_copy _reshape_copy _stack _to_copy _to_dense
        _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo lu_unpack
        _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr _values_copy alias_copy
        as_strided_copy as_strided_scatter block_diag cat ccol_indices_copy channel_shuffle clone col2im
        col_indices_copy complex copy crow_indices_copy detach_copy diag_embed diagonal_backward diagonal_copy
        diagonal_scatter expand_copy flip im2col indices_copy lift_fresh_copy narrow_copy
        native_channel_shuffle permute_copy pixel_shuffle pixel_unshuffle repeat repeat_interleave roll rot90
        row_indices_copy select_backward select_copy select_scatter slice_backward slice_copy slice_scatter
        split_copy split_with_sizes_copy squeeze_copy stack t_copy to_mkldnn to_padded_tensor transpose_copy
        tril triu unbind_copy unfold_backward unfold_copy unsqueeze_copy values_copy view_as_complex_copy
        view_as_real_copy view_copy copy_sparse_to_sparse _coalesce _coalesced _jagged_to_padded_dense_forward
        _padded_dense_to_jagged_forward _nested_from_padded _nested_from_padded_and_nested_example
        _nested_from_padded_tensor _nested_select_backward _nested_tensor_from_mask
        _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list _pack_padded_sequence
        _pack_padded_sequence_backward _pad_packed_sequence _chunk_cat constant_pad_nd reflection_pad1d
        reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d
        reflection_pad3d_backward replication_pad1d replication_pad1d_backward replication_pad2d
        replication_pad2d_backward replication_pad3d replication_pad3d_backward mkldnn_reorder_conv2d_weight
        mkldnn_reorder_conv3d_weight
        _convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight
        _cudnn_rnn_flatten_weight sparse_mask sparse_resize
        sparse_resize_and_clear resize_as_sparse _sparse_broadcast_to _sparse_broadcast_to_copy _spdiags
        _unsafe_index _unsafe_masked_index embedding embedding_renorm gather index index_copy index_fill
        index_select masked_fill masked_scatter masked_scatter_backward masked_select nonzero nonzero_static
        put scatter take where argsort bucketize isin kthvalue median nanmedian mode msort searchsorted sort
        topk unique_consecutive unique_dim unique_dim_consecutive _unique _unique2 argmax argmin histc
        histogram _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors bincount
        count_nonzero max_unpool2d max_unpool3d _fill_mem_eff_dropout_mask_ hash_tensor""",
        with_inplace=True,
    ),
    # One operation per element of the result.
    FreeGroup(
        "output",
        1,
        """_conj_physical _masked_scale _prelu_kernel abs acos acosh add addr angle asin asinh atan atan2
        atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp
        clamp_max clamp_min conj_physical copysign cos cosh deg2rad digamma div eq erf erfc erfinv exp exp2
        expm1 floor floor_divide fmax fmin fmod frac frexp gcd ge gt heaviside hypot i0 igamma igammac isinf
        isnan isneginf isposinf isfinite lcm ldexp le lgamma log log10 log1p log2 logaddexp logaddexp2
        logical_and logical_not logical_or logical_xor logit lt maximum minimum mul mvlgamma nan_to_num ne neg
        nextafter polar polygamma pow rad2deg reciprocal relu remainder round rsqrt rsub sgn sign signbit sin
        sinc sinh special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_entr special_erfcx special_hermite_polynomial_h
        special_hermite_polynomial_he special_i0e special_i1 special_i1e special_laguerre_polynomial_l
        special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
        special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
        special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
        special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py special_zeta sqrt
        square sub tan threshold threshold_backward trunc xlogy __and__ __or__ __xor__ __lshift__ __rshift__
        __ilshift__ __irshift__ _add_relu dropout native_dropout native_dropout_backward _fused_dropout
        feature_dropout glu_jvp quantize_per_tensor quantize_per_channel
        quantize_per_tensor_dynamic dequantize int_repr _make_per_channel_quantized_tensor
        _make_per_tensor_quantized_tensor _transform_bias_rescale_qkv _amp_update_scale""",
        with_inplace=True,
    ),
    # One operation per element that is added to places of the result.
    FreeGroup(
        "source",
        1,
        """index_add index_put index_reduce _index_put_impl scatter_add scatter_reduce _unsafe_index_put
        _unsafe_masked_index_put_accumulate""",
        with_inplace=True,
    ),
    # Bags of rows out of a table: one operation per element of the rows taken.
    FreeGroup(
        "bag",
        1,
        """_embedding_bag _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_dense_backward
        _embedding_bag_per_sample_weights_backward""",
    ),
    # Two to ten operations per element of the result, counted as they are usually written out.
    FreeGroup(
        "output",
        2,
        """addcdiv addcmul lerp hardtanh hardtanh_backward leaky_relu leaky_relu_backward rrelu_with_noise
        rrelu_with_noise_backward rrelu_with_noise_functional _prelu_kernel_backward relu6 hardshrink
        hardshrink_backward softshrink softshrink_backward native_batch_norm_eval glu dist
        fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fake_quantize_learnable_per_channel_affine
        _fake_quantize_learnable_per_channel_affine_backward _fake_quantize_learnable_per_tensor_affine
        _fake_quantize_learnable_per_tensor_affine_backward _fused_moving_avg_obs_fq_helper
        _fused_moving_avg_obs_fq_helper_functional renorm""",
        with_inplace=True,
    ),
    FreeGroup(
        "output",
        4,
        """celu elu elu_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward
        log_sigmoid_backward log_sigmoid_forward logit_backward selu sigmoid sigmoid_backward silu
        silu_backward softplus softplus_backward tanh tanh_backward glu_backward glu_backward_jvp mish
        _thnn_fused_gru_cell _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell
        _thnn_fused_lstm_cell_backward_impl _thnn_fused_lstm_cell_backward""",
        with_inplace=True,
    ),
    FreeGroup("output", 8, "gelu gelu_backward silu_backward mish_backward", with_inplace=True),
    # Normalisation: mean, variance, difference, scale and shift make about 5 per element, as fvcore counts
    # them. native_batch_norm is not here: only what torch makes of it tells training from evaluation.
    FreeGroup(
        "input",
        5,
        """native_layer_norm native_group_norm cudnn_batch_norm miopen_batch_norm
        _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update
        _batch_norm_with_update_functional quantized_batch_norm batch_norm_stats batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_update_stats _weight_norm_interface""",
    ),
    FreeGroup("input", 4, "_fused_rms_norm rms_norm"),
    # Evaluation mode folds the statistics into one multiply and one add.
    FreeGroup("input", 2, "_native_batch_norm_legit_no_training _batch_norm_no_update batch_norm_elemt"),
    FreeGroup(
        "input",
        10,
        """native_layer_norm_backward native_group_norm_backward native_batch_norm_backward
        cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward batch_norm_backward_reduce
        batch_norm_backward_elemt _fused_rms_norm_backward _weight_norm_interface_backward""",
    ),
    FreeGroup(
        "softmax",
        0,
        """_softmax _log_softmax _safe_softmax _masked_softmax _sparse_softmax _sparse_log_softmax
        _nested_tensor_softmax_with_shape""",
    ),
    FreeGroup(
        "softmax",
        0,
        """_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward
        _sparse_softmax_backward_data _sparse_log_softmax_backward_data""",
    ),
    # Reductions: one operation per element that goes in.
    FreeGroup(
        "input",
        1,
        """_aminmax _cummax_helper _cummin_helper _logcumsumexp all amax amin aminmax any cummax cummin
        cumprod cumsum logcumsumexp max mean min nansum norm native_norm prod sum trace _sparse_sum
        _sparse_sum_backward _sparse_csr_sum _sparse_csr_prod _nested_sum_backward segment_reduce
        _segment_reduce_backward embedding_dense_backward""",
        with_inplace=True,
    ),
    FreeGroup(
        "input", 2, "linalg_vector_norm linalg__powsum logsumexp linalg_cross std std_mean var var_mean"
    ),
    # Difference, power and sum for each number of each pair of rows.
    FreeGroup("pairs", 3, "_pdist_forward _pdist_backward"),
    # Losses.
    FreeGroup(
        "input",
        4,
        """binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss
        huber_loss_backward mse_loss mse_loss_backward multi_margin_loss multi_margin_loss_backward
        multilabel_margin_loss_backward multilabel_margin_loss_forward nll_loss2d_backward nll_loss2d_forward
        nll_loss_backward nll_loss_forward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss
        soft_margin_loss_backward _ctc_loss _ctc_loss_backward _cudnn_ctc_loss miopen_ctc_loss""",
    ),
    # Pooling: one operation per element of each window.
    FreeGroup(
        "window",
        1,
        """avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d
        mkldnn_max_pool3d quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d avg_pool1d
        max_pool1d""",
    ),
    FreeGroup(
        "input",
        1,
        """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
        _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
        adaptive_max_pool3d_backward adaptive_avg_pool3d_backward avg_pool2d_backward avg_pool3d_backward
        fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d
        fractional_max_pool3d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward
        max_pool2d_backward mkldnn_adaptive_avg_pool2d mkldnn_adaptive_avg_pool2d_backward
        mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward""",
    ),
    # Interpolation: neighbours times weights. Not MACs by the convention, though they are multiply-adds.
    FreeGroup(
        "none",
        0,
        """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_nearest1d_backward
        upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward
        _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward""",
    ),
    FreeGroup("output", 4, "upsample_linear1d upsample_linear1d_backward"),
    FreeGroup(
        "output",
        8,
        """upsample_bilinear2d upsample_bilinear2d_backward _upsample_bilinear2d_aa
        _upsample_bilinear2d_aa_backward grid_sampler_2d grid_sampler_2d_backward
        _grid_sampler_2d_cpu_fallback _grid_sampler_2d_cpu_fallback_backward cudnn_grid_sampler
        cudnn_grid_sampler_backward""",
    ),
    FreeGroup(
        "output",
        16,
        "upsample_trilinear3d upsample_trilinear3d_backward grid_sampler_3d grid_sampler_3d_backward",
    ),
    FreeGroup(
        "output",
        32,
        """upsample_bicubic2d upsample_bicubic2d_backward _upsample_bicubic2d_aa
        _upsample_bicubic2d_aa_backward _upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward""",
    ),
    FreeGroup("fft", 5, "_fft_c2c _fft_c2r _fft_r2c"),
    # Optimizers and gradient scaling: lists of tensors.
    FreeGroup(
        "lists",
        1,
        """_foreach_abs _foreach_acos _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_asin
        _foreach_atan _foreach_ceil _foreach_clamp_max _foreach_clamp_min _foreach_cos _foreach_cosh
        _foreach_div _foreach_erf _foreach_erfc _foreach_exp _foreach_expm1 _foreach_floor _foreach_frac
        _foreach_lerp _foreach_lgamma _foreach_log _foreach_log10 _foreach_log1p _foreach_log2 _foreach_max
        _foreach_maximum _foreach_minimum _foreach_mul _foreach_neg _foreach_norm _foreach_pow _foreach_powsum
        _foreach_reciprocal _foreach_round _foreach_rsqrt _foreach_sigmoid _foreach_sign _foreach_sin
        _foreach_sinh _foreach_sqrt _foreach_sub _foreach_tan _foreach_tanh _foreach_trunc
        _amp_foreach_non_finite_check_and_unscale""",
        with_inplace=True,
    ),
    FreeGroup("none", 0, "_foreach_clone _foreach_copy _foreach_zero", with_inplace=True),
    FreeGroup("lists", 10, "_fused_adagrad _fused_adam _fused_adamw _fused_sgd", with_inplace=True),
    # Other libraries.
    FreeGroup(
        "output",
        8,
        """nms roi_align _roi_align_backward roi_pool _roi_pool_backward ps_roi_align _ps_roi_align_backward
        ps_roi_pool _ps_roi_pool_backward qnms qroi_align box_iou_rotated""",
        namespace="torchvision",
    ),
    FreeGroup("none", 0, "_cuda_version", namespace="torchvision"),
    FreeGroup(
        "output",
        1,
        """add add_relu add_scalar add_scalar_relu mul mul_relu mul_scalar mul_scalar_relu cat cat_relu
        batch_norm batch_norm1d batch_norm2d batch_norm3d batch_norm_relu batch_norm1d_relu batch_norm2d_relu
        batch_norm3d_relu celu clamp dropout elu group_norm hardswish instance_norm layer_norm leaky_relu
        max_pool1d max_pool2d prelu relu6 sigmoid softmax threshold embedding_byte embedding_4bit
        embedding_bag_byte embedding_bag_4bit conv1d_prepack conv2d_prepack conv3d_prepack linear_prepack
        linear_prepack_fp16""",
        namespace="quantized",
    ),
    # Collectives move gradients between processes.
    FreeGroup(
        "none",
        0,
        """allreduce_ allgather_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ broadcast_ barrier
        reduce_ send recv_ gather_ scatter_ alltoall_ alltoall_base_ allreduce_coalesced_ allgather_coalesced_
        allgather_into_tensor_coalesced_ reduce_scatter_tensor_coalesced_ monitored_barrier_
        recv_any_source_""",
        namespace="c10d",
    ),
    FreeGroup(
        "none",
        0,
        """all_reduce all_reduce_ all_reduce_coalesced all_gather_into_tensor all_gather_into_tensor_out
        all_gather_into_tensor_coalesced reduce_scatter_tensor reduce_scatter_tensor_coalesced
        all_to_all_single broadcast broadcast_ wait_tensor""",
        namespace="_c10d_functional",
    ),
    FreeGroup(
        "none",
        0,
        "_record_function_enter _record_function_enter_new _record_function_exit",
        namespace="profiler",
    ),
    FreeGroup(
        "none",
        0,
        """fork join record_event record_stream sync_dealloc synchronize_device synchronize_event
        synchronize_stream wait_event wait_stream""",
        namespace="streams",
    ),
    # What PyTorch writes derivatives of derivatives with, on tensors without data.
    FreeGroup(
        "output",
        1,
        """abs acos acosh add asin asinh atan atan2 atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0
        bessel_j1 bitwise_and bitwise_not bitwise_or bitwise_xor cbrt ceil conj_physical cos cosh digamma div eq
        erf erf_inv erfc erfcx exp exp2 expm1 floor fmax fmin fmod frexp gcd ge gt hypot igamma igammac isfinite
        le lgamma log log10 log1p log2 lt maximum minimum mul ndtri ne neg nextafter pow reciprocal remainder
        round rsqrt shift_left shift_right_arithmetic shift_right_logical sign signbit sin sinh
        spherical_bessel_j0 sqrt sub tan tanh trunc zeta""",
        namespace="prims",
    ),
    FreeGroup("input", 1, "amax amin prod sum var xor_sum", namespace="prims"),
    FreeGroup(
        "none",
        0,
        """as_strided as_strided_scatter broadcast_in_dim cat clone collapse collapse_view conj
        convert_element_type copy_strided copy_to device_put empty_permuted empty_strided expand_dims fill imag
        iota item maximum_value minimum_value normal real reshape resize rev scalar_tensor slice split_dim
        squeeze transpose view_element_type view_of where""",
        namespace="prims",
    ),
    FreeGroup(
        "none",
        0,
        """decode_gif decode_image decode_jpeg decode_jpegs_cuda decode_png decode_webp encode_jpeg
        encode_jpegs_cuda encode_png read_file write_file""",
        namespace="image",
    ),
)


def _by_name() -> dict[str, tuple[str, int]]:
    names = {}
    for group in FREE_GROUPS:
        for name in group.names.split():
            names[f"{group.namespace}::{name}"] = (group.rule, group.factor)
            if group.with_inplace and not name.endswith("_"):
                names[f"{group.namespace}::{name}_"] = (group.rule, group.factor)
    return names


# Exact name -> (rule, factor) of the estimate.
FREE: dict[str, tuple[str, int]] = _by_name()
