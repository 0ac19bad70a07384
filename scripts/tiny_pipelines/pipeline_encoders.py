"""What is made small of transformers' networks: classes and arguments of their configs."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.scripts.tiny_pipelines.pipeline_recipes import PROMPT_TOKENS, VOCABULARY, WIDTH

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
