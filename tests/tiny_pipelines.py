"""Complete diffusers pipelines with random weights, small enough to run on a CPU in a second, without a network."""

import json

import torch

VOCABULARY = 514
TOKENS = 77
# VAEs of two blocks halve the sides once.
VAE_FACTOR = 2
SIDE = 16


def byte_tokenizer(folder):
    """CLIPTokenizer of single bytes: 256 of them, the same at a word's end, start and end of text; no merges."""
    from transformers import CLIPTokenizer

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
    entries = letters + [f"{letter}</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({entry: number for number, entry in enumerate(entries)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"model_max_length": TOKENS, "tokenizer_class": "CLIPTokenizer", "pad_token": "<|endoftext|>"}
        )
    )
    return CLIPTokenizer.from_pretrained(folder)


def clip_config(**changes):
    """Settings of a text encoder of two layers, 32 wide."""
    from transformers import CLIPTextConfig

    ends = dict(bos_token_id=VOCABULARY - 2, eos_token_id=VOCABULARY - 1, pad_token_id=VOCABULARY - 1)
    size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    return CLIPTextConfig(
        vocab_size=VOCABULARY, max_position_embeddings=TOKENS, projection_dim=32, **size, **ends, **changes
    )


def tiny_vae(**changes):
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        sample_size=SIDE,
        **changes,
    )


def stable_diffusion(folder):
    """A UNet pipeline with PNDM, as Stable Diffusion 1 and 2 have it."""
    from diffusers import PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextModel

    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=SIDE // VAE_FACTOR,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
    )
    return StableDiffusionPipeline(
        vae=tiny_vae(),
        text_encoder=CLIPTextModel(clip_config()).eval(),
        tokenizer=byte_tokenizer(folder / "tokenizer_source"),
        unet=unet,
        scheduler=PNDMScheduler(skip_prk_steps=True, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_3(folder):
    """A transformer pipeline with two CLIP encoders; the T5 is left out, as users with little memory do."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import CLIPTextModelWithProjection

    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=SIDE // VAE_FACTOR,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=64,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        pos_embed_max_size=16,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=tiny_vae(use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06),
        text_encoder=CLIPTextModelWithProjection(clip_config()).eval(),
        tokenizer=byte_tokenizer(folder / "tokenizer_source"),
        text_encoder_2=CLIPTextModelWithProjection(clip_config(hidden_act="gelu")).eval(),
        tokenizer_2=byte_tokenizer(folder / "tokenizer_source"),
        text_encoder_3=None,
        tokenizer_3=None,
    )


PIPELINES = {"unet": stable_diffusion, "transformer": stable_diffusion_3}
