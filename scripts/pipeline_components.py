"""Tiny networks, tokenizers and schedulers with random weights, for any diffusers pipeline class, from its signature.

A class's own constructor says what it takes; TINY says which of its arguments are made small. What a pipeline wants
otherwise than others of its components stands in `pipeline_calls.py`, by the pipeline's name.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import torch

WIDTH = 32
VOCABULARY = 640
PROMPT_TOKENS = 77
LATENT_CHANNELS = 4
SPECIAL = [
    "<pad>", "<bos>", "<eos>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|video_pad|>",
    "<|vision_start|>", "<|vision_end|>", "<mask>", "<image>", "<|startoftext|>", "[gMASK]", "<sop>",
]  # fmt: skip
CHAT = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}"
)

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

CLIP = dict(
    hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, projection_dim=WIDTH
)
LANGUAGE = dict(
    hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=VOCABULARY, max_position_embeddings=4096, head_dim=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
T5 = dict(d_model=WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=VOCABULARY)
VISION = dict(
    hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8,
    projection_dim=WIDTH,
)  # fmt: skip
BERT = dict(
    hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY
)
QWEN_ROPE = dict(rope_type="default", mrope_section=[1, 1, 2], rope_theta=10000.0)

# Class of transformers -> class and arguments of its config.
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIPTextModel": ("CLIPTextConfig", dict(**CLIP, vocab_size=VOCABULARY, max_position_embeddings=PROMPT_TOKENS)),
    "T5EncoderModel": ("T5Config", T5),
    "UMT5EncoderModel": ("UMT5Config", T5),
    "BertModel": ("BertConfig", BERT),
    "CLIPVisionModel": ("CLIPVisionConfig", VISION),
    "SiglipVisionModel": ("SiglipVisionConfig", VISION),
    "Gemma2PreTrainedModel": ("Gemma2Config", LANGUAGE),
    "GemmaPreTrainedModel": ("GemmaConfig", LANGUAGE),
    "GlmModel": ("GlmConfig", LANGUAGE),
    "LlamaModel": ("LlamaConfig", LANGUAGE),
    "LlamaForCausalLM": ("LlamaConfig", LANGUAGE),
    "Qwen3ForCausalLM": ("Qwen3Config", LANGUAGE),
    "Qwen3Model": ("Qwen3Config", LANGUAGE),
    "SmolLM3ForCausalLM": ("SmolLM3Config", LANGUAGE),
    "Qwen2_5_VLForConditionalGeneration": (
        "Qwen2_5_VLConfig",
        dict(
            text_config=dict(**LANGUAGE, rope_scaling=QWEN_ROPE),
            vision_config=dict(
                depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=WIDTH,
                fullatt_block_indexes=[0],
            ),
            image_token_id=7, video_token_id=8, vision_start_token_id=9, vision_end_token_id=10,
        ),
    ),
}  # fmt: skip
PIXTRAL = dict(
    model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
    image_size=32, patch_size=8,
)  # fmt: skip
QWEN_VL = ENCODERS["Qwen2_5_VLForConditionalGeneration"][1]
ENCODERS |= {
    "Qwen2_5_VLTextModel": ("Qwen2_5_VLTextConfig", QWEN_VL["text_config"]),
    "Qwen2VLForConditionalGeneration": (
        "Qwen2VLConfig",
        {**QWEN_VL, "vision_config": dict(depth=1, embed_dim=16, hidden_size=WIDTH, num_heads=2, mlp_ratio=2)},
    ),
    "Qwen3VLForConditionalGeneration": (
        "Qwen3VLConfig",
        dict(
            text_config=dict(**LANGUAGE, rope_scaling={**QWEN_ROPE, "mrope_interleaved": True}),
            vision_config=dict(
                depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=WIDTH,
                deepstack_visual_indexes=[0],
            ),
            image_token_id=7, video_token_id=8, vision_start_token_id=9, vision_end_token_id=10,
        ),
    ),
    "Mistral3Model": (
        "Mistral3Config",
        dict(text_config=dict(model_type="mistral", **LANGUAGE), vision_config=PIXTRAL, image_token_index=12),
    ),
}  # fmt: skip
ENCODERS["Qwen3VLModel"] = ENCODERS["Qwen3VLForConditionalGeneration"]
ENCODERS["Mistral3ForConditionalGeneration"] = ENCODERS["Mistral3Model"]
ENCODERS["CLIPTextModelWithProjection"] = ENCODERS["CLIPTextModel"]
ENCODERS["CLIPVisionModelWithProjection"] = ENCODERS["CLIPVisionModel"]
# What an abstract annotation stands for.
STANDS_FOR = {
    "Gemma2PreTrainedModel": "Gemma2Model",
    "GemmaPreTrainedModel": "GemmaModel",
    "PreTrainedModel": "Qwen3Model",
}
OPTIONAL = (
    "safety_checker", "watermark", "watermarker", "image_encoder", "feature_extractor", "requires_safety_checker",
)  # fmt: skip


class NotConstructibleError(Exception):
    """A component nobody here knows how to make small."""


@functools.cache
def tokenizer() -> Any:
    """A fast tokenizer of single bytes, with the special tokens that language models' templates use."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    entries = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE(vocab={entry: n for n, entry in enumerate(entries)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    inner.post_processor = processors.TemplateProcessing(
        single="$A <eos>", pair="$A $B <eos>", special_tokens=[("<eos>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>",
        model_max_length=PROMPT_TOKENS, chat_template=CHAT,
    )  # fmt: skip


def small(kind: type, **changes: Any) -> Any:
    """A network of a diffusers class, made small, in eval mode. Raises NotConstructibleError for an unknown class."""
    if kind.__name__ not in TINY:
        raise NotConstructibleError(f"no tiny {kind.__name__} is known")
    accepted = inspect.signature(kind.__init__).parameters
    arguments = {k: v for k, v in {**TINY[kind.__name__], **changes}.items() if k in accepted}
    torch.manual_seed(0)
    return kind(**arguments).eval()


def encoder(name: str, **changes: Any) -> Any:
    """A network of transformers."""
    import transformers

    key = "Qwen3Model" if name == "PreTrainedModel" else name
    if key not in ENCODERS:
        raise NotConstructibleError(f"no tiny {name} is known")
    config, arguments = ENCODERS[key]
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**{**arguments, **changes})
    return getattr(transformers, STANDS_FOR.get(name, name))(settings).eval()


def image_processor(name: str) -> Any:
    """An image processor for the tiny vision networks."""
    import transformers

    kind = getattr(transformers, name)
    return (
        kind(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
        if "CLIP" in name
        else kind(size={"height": 32, "width": 32})
    )


def vision_language_processor(name: str) -> Any:
    """A processor of Qwen's, for images of a few patches."""
    import transformers

    small_images = dict(patch_size=14, merge_size=2, min_pixels=28 * 28, max_pixels=56 * 56)
    return getattr(transformers, name)(
        image_processor=transformers.Qwen2VLImageProcessor(**small_images),
        tokenizer=tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(**small_images),
        chat_template=CHAT,
    )


def classes_of(annotation: Any) -> list[str]:
    """Names of the classes in an annotation, in order."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.findall(r"[A-Za-z_][A-Za-z0-9_]*", re.sub(r"[\w.]+\.(?=\w)", "", text))


def component(name: str, annotation: Any, changes: dict[str, Any]) -> Any:
    """A component by the name and the annotation of the pipeline's argument. Raises NotConstructibleError."""
    import diffusers
    import transformers

    names = classes_of(annotation)
    if any(one.endswith("VLProcessor") for one in names):
        return vision_language_processor(next(one for one in names if one.endswith("VLProcessor")))
    if "tokenizer" in name and "audio" not in name:
        return tokenizer()
    if "processor" in name or "feature_extractor" in name:
        for one in names:
            if one == "CLIPProcessor":
                return image_processor("CLIPImageProcessor")
            if one.endswith("VLProcessor"):
                return vision_language_processor(one)
            if one.endswith("ImageProcessor"):
                return image_processor(one)
        raise NotConstructibleError(f"no tiny {name} ({', '.join(names)}) is known")
    for one in names:
        if one == "KarrasDiffusionSchedulers" or one == "SchedulerMixin":
            return diffusers.DDIMScheduler(clip_sample=False)
        kind = getattr(diffusers, one, None)
        if isinstance(kind, type):
            if one.endswith("Scheduler"):
                return kind(**changes)
            return small(kind, **changes)
        if isinstance(getattr(transformers, one, None), type):
            return encoder(one, **changes)
    raise NotConstructibleError(f"no tiny {name} ({', '.join(names) or annotation}) is known")
