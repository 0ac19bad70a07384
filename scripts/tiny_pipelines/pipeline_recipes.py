"""What is made small of diffusers' networks: arguments of their classes; the rest are the classes' own defaults."""

from __future__ import annotations

from typing import Any

WIDTH = 32
VOCABULARY = 640
PROMPT_TOKENS = 77
LATENT_CHANNELS = 4

BLOCKS = dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
UNET = dict(
    **BLOCKS, sample_size=8, cross_attention_dim=WIDTH, attention_head_dim=4,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
)  # fmt: skip
UNET_3D = dict(
    **BLOCKS, sample_size=8, cross_attention_dim=WIDTH,
    down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
)  # fmt: skip
CONTROLNET = dict(
    **BLOCKS, cross_attention_dim=WIDTH, attention_head_dim=4, conditioning_embedding_out_channels=(4, 4, 8, 8),
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
)  # fmt: skip
MMDIT = dict(num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2)
FLUX = dict(
    **MMDIT, in_channels=4 * LATENT_CHANNELS, joint_attention_dim=WIDTH, pooled_projection_dim=WIDTH,
    axes_dims_rope=(4, 4, 8),
)  # fmt: skip
SD3 = dict(
    num_layers=2, attention_head_dim=8, num_attention_heads=4, sample_size=32, in_channels=LATENT_CHANNELS,
    out_channels=LATENT_CHANNELS, joint_attention_dim=WIDTH, caption_projection_dim=32, pooled_projection_dim=2 * WIDTH,
    pos_embed_max_size=96,
)  # fmt: skip
DIT = dict(num_layers=1, attention_head_dim=16, num_attention_heads=2, sample_size=8)
WAN = dict(
    num_layers=2, num_attention_heads=2, attention_head_dim=12, in_channels=16, out_channels=16, text_dim=WIDTH,
    freq_dim=32, ffn_dim=32, rope_max_seq_len=64,
)  # fmt: skip
WAN_VAE = dict(base_dim=4, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)
SANA = dict(
    in_channels=LATENT_CHANNELS, out_channels=LATENT_CHANNELS, num_layers=1, num_attention_heads=2,
    attention_head_dim=8, num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16,
    caption_channels=WIDTH, sample_size=2,
)  # fmt: skip
VAE_3D = dict(block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4)
LTX_VAE = dict(
    latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
    layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1),
)  # fmt: skip
COSMOS = dict(
    in_channels=16, out_channels=16, num_attention_heads=2, attention_head_dim=16, num_layers=1, mlp_ratio=2,
    text_embed_dim=WIDTH, adaln_lora_dim=4, max_size=(4, 32, 32),
)  # fmt: skip
HUNYUAN_VIDEO = dict(
    in_channels=16, out_channels=16, num_attention_heads=2, attention_head_dim=10, num_layers=1, num_single_layers=1,
    num_refiner_layers=1, text_embed_dim=WIDTH, pooled_projection_dim=WIDTH, rope_axes_dim=(2, 4, 4),
)  # fmt: skip
HUNYUAN_DIT = dict(
    num_attention_heads=2, attention_head_dim=8, in_channels=LATENT_CHANNELS, patch_size=2, sample_size=8,
    hidden_size=16, cross_attention_dim=WIDTH, cross_attention_dim_t5=WIDTH, pooled_projection_dim=16, text_len=77,
    text_len_t5=256, activation_fn="gelu-approximate",
)  # fmt: skip

# Arguments of the class that are made small; the rest are its own defaults.
TINY: dict[str, dict[str, Any]] = {
    "AutoencoderKL": dict(
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4, latent_channels=LATENT_CHANNELS,
        shift_factor=0.0, sample_size=64, down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
    ),
    "AsymmetricAutoencoderKL": dict(norm_num_groups=4),
    "AutoencoderKLTemporalDecoder": dict(
        block_out_channels=(32, 32, 32, 32), layers_per_block=1, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4,
    ),
    "AutoencoderTiny": dict(
        encoder_block_out_channels=(8,) * 4, decoder_block_out_channels=(8,) * 4,
        num_encoder_blocks=(1, 1, 1, 1), num_decoder_blocks=(1, 1, 1, 1),
    ),
    "VQModel": dict(
        block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4, num_vq_embeddings=16, vq_embed_dim=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    ),
    "AutoencoderKLWan": WAN_VAE,
    "AutoencoderKLQwenImage": WAN_VAE,
    "AutoencoderKLCogVideoX": dict(**VAE_3D, latent_channels=4, sample_height=64, sample_width=64),
    "AutoencoderKLHunyuanVideo": dict(**VAE_3D),
    "AutoencoderKLAllegro": dict(**VAE_3D, sample_size=64),
    "AutoencoderKLMagvit": dict(**VAE_3D, latent_channels=4),
    "AutoencoderKLLTXVideo": LTX_VAE,
    "AutoencoderKLMochi": dict(
        encoder_block_out_channels=(32,) * 4, decoder_block_out_channels=(32,) * 4, layers_per_block=(1,) * 5,
        add_attention_block=(False,) * 5,
    ),
    "AutoencoderKLCosmos": dict(
        encoder_block_out_channels=(8, 8, 8, 8), decode_block_out_channels=(8, 8, 8, 8), num_layers=1,
        attention_resolutions=(),
    ),
    "AutoencoderKLFlux2": dict(
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4, latent_channels=4,
    ),
    "AutoencoderDC": dict(
        latent_channels=LATENT_CHANNELS, attention_head_dim=4, encoder_block_out_channels=(8,) * 6,
        decoder_block_out_channels=(8,) * 6, encoder_layers_per_block=(1,) * 6, decoder_layers_per_block=(1,) * 6,
        encoder_qkv_multiscales=((),) * 6, decoder_qkv_multiscales=((),) * 6,
    ),
    "AutoencoderOobleck": dict(
        encoder_hidden_size=8, downsampling_ratios=[2, 4], channel_multiples=[1, 2], decoder_channels=4,
        decoder_input_channels=4, sampling_rate=64,
    ),
    "AutoencoderKLHunyuanImage": dict(
        in_channels=3, out_channels=3, latent_channels=8, block_out_channels=(8, 8, 8, 8), layers_per_block=1,
        spatial_compression_ratio=8, sample_size=64,
    ),
    "AutoencoderKLHunyuanImageRefiner": dict(
        latent_channels=8, block_out_channels=(8, 8, 8, 8, 8), layers_per_block=1,
    ),
    "AutoencoderKLHunyuanVideo15": dict(
        latent_channels=8, block_out_channels=(8, 8, 8, 8, 8), layers_per_block=1,
    ),
    "UNet2DConditionModel": UNET,
    "UNet2DModel": dict(
        **BLOCKS, sample_size=16, attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ),
    "UNet1DModel": dict(
        sample_size=512, sample_rate=64, extra_in_channels=64, block_out_channels=(32, 32, 64), norm_num_groups=8,
        flip_sin_to_cos=True, use_timestep_embedding=False, time_embedding_type="fourier",
    ),
    "UNet3DConditionModel": dict(**UNET_3D, attention_head_dim=4),
    "I2VGenXLUNet": dict(**UNET_3D, num_attention_heads=2),
    "UNetMotionModel": dict(
        **BLOCKS, sample_size=8, cross_attention_dim=WIDTH, num_attention_heads=2, motion_num_attention_heads=2,
        down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"),
        up_block_types=("UpBlockMotion", "CrossAttnUpBlockMotion"),
    ),
    "MotionAdapter": dict(
        block_out_channels=(8, 16), motion_layers_per_block=1, motion_norm_num_groups=4, motion_num_attention_heads=2,
    ),
    "UNetSpatioTemporalConditionModel": dict(
        block_out_channels=(32, 64), layers_per_block=1, sample_size=8, cross_attention_dim=WIDTH,
        num_attention_heads=(2, 4), addition_time_embed_dim=8, projection_class_embeddings_input_dim=24, num_frames=2,
        down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
    ),
    "Kandinsky3UNet": dict(
        time_embedding_dim=32, groups=4, attention_head_dim=4, layers_per_block=2, block_out_channels=(8, 16, 32, 64),
        cross_attention_dim=WIDTH, encoder_hid_dim=WIDTH,
    ),
    "ControlNetModel": CONTROLNET,
    "ControlNetUnionModel": dict(**CONTROLNET, num_control_type=6, num_trans_channel=8, num_trans_head=2,
                                 num_proj_channel=8, num_trans_layer=1),
    "SparseControlNetModel": dict(
        **BLOCKS, cross_attention_dim=WIDTH, attention_head_dim=4, motion_num_attention_heads=2,
        conditioning_embedding_out_channels=(4, 4, 8, 8), use_simplified_condition_embedding=True,
        conditioning_channels=4, down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"),
    ),
    "ControlNetXSAdapter": dict(
        conditioning_embedding_out_channels=(4, 4, 8, 8), num_attention_heads=2, block_out_channels=(4, 8),
        base_block_out_channels=(8, 16), cross_attention_dim=WIDTH, sample_size=8, max_norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), upcast_attention=False, use_linear_projection=False,
    ),
    "T2IAdapter": dict(channels=[8, 16], num_res_blocks=1, downscale_factor=8),
    "PriorTransformer": dict(
        num_attention_heads=2, attention_head_dim=8, num_layers=1, embedding_dim=WIDTH, num_embeddings=PROMPT_TOKENS,
    ),
    "FluxTransformer2DModel": FLUX,
    "ChromaTransformer2DModel": dict(
        **MMDIT, in_channels=16, joint_attention_dim=WIDTH, axes_dims_rope=(4, 4, 8), approximator_num_channels=8,
        approximator_hidden_dim=16, approximator_layers=1,
    ),
    "FluxControlNetModel": FLUX,
    "BriaTransformer2DModel": dict(**FLUX) | dict(pooled_projection_dim=None),
    "BriaFiboTransformer2DModel": dict(
        **MMDIT, in_channels=16, joint_attention_dim=2 * WIDTH, axes_dims_rope=[4, 4, 8], text_encoder_dim=WIDTH,
    ),
    "LongCatImageTransformer2DModel": FLUX,
    "OvisImageTransformer2DModel": dict(
        **MMDIT, in_channels=16, out_channels=16, joint_attention_dim=WIDTH, axes_dims_rope=(4, 4, 8),
    ),
    "Flux2Transformer2DModel": dict(
        **MMDIT, in_channels=16, joint_attention_dim=3 * WIDTH, timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
    ),
    "QwenImageTransformer2DModel": dict(
        num_layers=1, attention_head_dim=16, num_attention_heads=2, in_channels=64, out_channels=16,
        joint_attention_dim=WIDTH, axes_dims_rope=(4, 4, 8),
    ),
    "QwenImageControlNetModel": dict(
        num_layers=1, attention_head_dim=16, num_attention_heads=2, in_channels=64, out_channels=16,
        joint_attention_dim=WIDTH, axes_dims_rope=(4, 4, 8),
    ),
    "SD3Transformer2DModel": SD3,
    "SD3ControlNetModel": SD3,
    "AuraFlowTransformer2DModel": dict(
        sample_size=32, in_channels=4, out_channels=4, num_mmdit_layers=1, num_single_dit_layers=1,
        attention_head_dim=8, num_attention_heads=4, joint_attention_dim=WIDTH, caption_projection_dim=32,
        pos_embed_max_size=256,
    ),
    "PixArtTransformer2DModel": dict(
        **DIT, in_channels=4, out_channels=8, cross_attention_dim=32, caption_channels=WIDTH,
        use_additional_conditions=False,
    ),
    "DiTTransformer2DModel": dict(**DIT, in_channels=4, out_channels=8),
    "SanaTransformer2DModel": SANA,
    "SanaControlNetModel": SANA,
    "SanaVideoTransformer3DModel": {**SANA, "in_channels": 16, "out_channels": 16, "sample_size": 8,
                                    "attention_head_dim": 12, "cross_attention_dim": 24,
                                    "cross_attention_head_dim": 12},
    "CogView3PlusTransformer2DModel": dict(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, text_embed_dim=WIDTH,
        time_embed_dim=8, condition_dim=4, pos_embed_max_size=32, sample_size=8,
    ),
    "CogView4Transformer2DModel": dict(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, text_embed_dim=WIDTH,
        time_embed_dim=8, condition_dim=4, pos_embed_max_size=32, sample_size=8, rope_axes_dim=(8, 8),
    ),
    "CogVideoXTransformer3DModel": dict(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=8,
        text_embed_dim=WIDTH, num_layers=1, sample_width=8, sample_height=8, sample_frames=9, max_text_seq_length=16,
        use_rotary_positional_embeddings=True,
    ),
    "LTXVideoTransformer3DModel": dict(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32,
        num_layers=1, caption_channels=WIDTH,
    ),
    "WanTransformer3DModel": WAN,
    "WanVACETransformer3DModel": {**WAN, "vace_layers": [0], "vace_in_channels": 96},
    "SkyReelsV2Transformer3DModel": WAN,
    "ChronoEditTransformer3DModel": WAN,
    "AnyFlowTransformer3DModel": WAN,
    "AnyFlowFARTransformer3DModel": WAN,
    "HeliosTransformer3DModel": {**WAN, "rope_dim": (4, 4, 4)},
    "WanAnimateTransformer3DModel": WAN,
    "CosmosTransformer3DModel": COSMOS,
    "CosmosControlNetModel": dict(
        n_controlnet_blocks=1, in_channels=18, latent_channels=18, model_channels=32, num_attention_heads=2,
        attention_head_dim=16, mlp_ratio=2, text_embed_dim=WIDTH, adaln_lora_dim=4, max_size=(4, 32, 32),
    ),
    "HunyuanVideoTransformer3DModel": HUNYUAN_VIDEO,
    "HunyuanVideoFramepackTransformer3DModel": {**HUNYUAN_VIDEO, "has_image_proj": True, "image_proj_dim": WIDTH,
                                                "has_clean_x_embedder": True},
    "HunyuanDiT2DModel": dict(**HUNYUAN_DIT, num_layers=2),
    "HunyuanDiT2DControlNetModel": dict(**HUNYUAN_DIT, transformer_num_layers=2),
    "HiDreamImageTransformer2DModel": dict(
        patch_size=2, in_channels=4, out_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8,
        num_attention_heads=4, caption_channels=[WIDTH, WIDTH], text_emb_dim=2 * WIDTH, num_routed_experts=2,
        num_activated_experts=1, axes_dims_rope=(4, 2, 2), max_resolution=(32, 32), llama_layers=(0, 1),
    ),
    "Lumina2Transformer2DModel": dict(
        sample_size=8, in_channels=4, hidden_size=24, num_layers=1, num_refiner_layers=1, num_attention_heads=3,
        num_kv_heads=1, multiple_of=2, axes_dim_rope=(4, 2, 2), axes_lens=(300, 64, 64), cap_feat_dim=WIDTH,
    ),
    "LuminaNextDiT2DModel": dict(
        sample_size=8, in_channels=4, hidden_size=24, num_layers=2, num_attention_heads=3, num_kv_heads=1,
        multiple_of=16, cross_attention_dim=WIDTH,
    ),
    "ZImageTransformer2DModel": dict(
        in_channels=4, dim=32, n_layers=2, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=WIDTH,
        axes_dims=[8, 4, 4], axes_lens=[1024, 64, 64],
    ),
    "ZImageControlNetModel": dict(
        control_layers_places=[0], control_refiner_layers_places=[0], control_in_dim=4, dim=32, n_refiner_layers=1,
        n_heads=2, n_kv_heads=2, add_control_noise_refiner="control_noise_refiner",
    ),
    "Kandinsky5Transformer3DModel": dict(
        in_visual_dim=4, out_visual_dim=4, in_text_dim=WIDTH, in_text_dim2=WIDTH, time_dim=32, model_dim=16, ff_dim=32,
        num_text_blocks=1, num_visual_blocks=1, axes_dims=(2, 2, 4),
    ),
    "MochiTransformer3DModel": dict(
        num_attention_heads=2, attention_head_dim=16, num_layers=2, pooled_projection_dim=32, in_channels=12,
        text_embed_dim=WIDTH, time_embed_dim=8, max_sequence_length=16,
    ),
    "AllegroTransformer3DModel": dict(
        num_attention_heads=2, attention_head_dim=12, num_layers=1, cross_attention_dim=24, caption_channels=WIDTH,
        sample_height=8, sample_width=8, sample_frames=4,
    ),
    "LatteTransformer3DModel": dict(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, patch_size=2, num_layers=1,
        sample_size=8, caption_channels=WIDTH, cross_attention_dim=16, video_length=2, activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000, norm_type="ada_norm_single", norm_elementwise_affine=False, attention_bias=True,
    ),
    "EasyAnimateTransformer3DModel": dict(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, patch_size=2, sample_width=8,
        sample_height=8, num_layers=1, mmdit_layers=1, time_embed_dim=8, text_embed_dim=WIDTH,
    ),
    "UVit2DModel": dict(
        hidden_size=32, cond_embed_dim=32, micro_cond_encode_dim=2, micro_cond_embed_dim=10, encoder_hidden_size=32,
        vocab_size=32, codebook_size=24, in_channels=32, block_out_channels=32, num_res_blocks=1, block_num_heads=1,
        num_hidden_layers=1, num_attention_heads=1, intermediate_size=64, sample_size=8,
    ),
    "StableCascadeUNet": dict(
        block_out_channels=(32, 32), num_attention_heads=(2, 2), down_num_layers_per_block=(1, 1),
        up_num_layers_per_block=(1, 1), conditioning_dim=32, clip_text_in_channels=WIDTH,
        clip_text_pooled_in_channels=WIDTH, clip_image_in_channels=WIDTH,
    ),
    "StableAudioDiTModel": dict(
        sample_size=16, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2,
        num_key_value_attention_heads=1, cross_attention_dim=16, time_proj_dim=8, global_states_input_dim=2 * WIDTH,
        cross_attention_input_dim=WIDTH,
    ),
    "StableAudioProjectionModel": dict(text_encoder_dim=WIDTH, conditioning_dim=WIDTH, min_value=0, max_value=32),
    "OmniGenTransformer2DModel": dict(
        hidden_size=16, num_attention_heads=2, num_key_value_heads=2, intermediate_size=16, num_layers=1,
        pad_token_id=0, vocab_size=VOCABULARY, rope_scaling={"long_factor": [1.0, 1.0, 1.0, 1.0],
                                                             "short_factor": [1.0, 1.0, 1.0, 1.0]},
        time_step_dim=8, pos_embed_max_size=32,
    ),
    "ErnieImageTransformer2DModel": dict(
        hidden_size=32, num_attention_heads=2, num_layers=1, ffn_hidden_size=32, in_channels=16, out_channels=16,
        text_in_dim=WIDTH, rope_axes_dim=(4, 4, 8),
    ),
    "PRXTransformer2DModel": dict(
        in_channels=4, context_in_dim=WIDTH, hidden_size=32, mlp_ratio=2.0, num_heads=2, depth=1, axes_dim=[8, 8],
    ),
    "HunyuanImageTransformer2DModel": dict(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, text_embed_dim=WIDTH, text_embed_2_dim=WIDTH, rope_axes_dim=(4, 4),
    ),
    "HunyuanVideo15Transformer3DModel": dict(
        in_channels=17, out_channels=8, num_attention_heads=2, attention_head_dim=10, num_layers=1,
        num_refiner_layers=1, text_embed_dim=WIDTH, text_embed_2_dim=WIDTH, image_embed_dim=WIDTH,
        rope_axes_dim=(2, 4, 4),
    ),
    "GlmImageTransformer2DModel": dict(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, text_embed_dim=WIDTH,
        time_embed_dim=8, condition_dim=4, prior_vq_quantizer_codebook_size=16,
    ),
    "ReduxImageEncoder": dict(redux_dim=WIDTH, txt_in_features=WIDTH),
    "CLIPImageProjection": dict(hidden_size=WIDTH),
}  # fmt: skip
