"""Whole networks, to the unit. The figures were derived independently of this counter."""

import functools

import pytest
import timm
import torch
import torchvision
from diffusers import AutoencoderKL, FluxTransformer2DModel, UNet2DConditionModel
from spandrel.architectures.SwinIR import SwinIR
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.scripts.counter_cases.derived_networks import FLUX_TRANSFORMER

# Stable Diffusion 2.1-base and FLUX.1-dev, from their released configs.
SD21_UNET = {
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
    "block_out_channels": [320, 640, 1280, 1280],
    "layers_per_block": 2,
    "in_channels": 4,
    "out_channels": 4,
    "cross_attention_dim": 1024,
    "attention_head_dim": [5, 10, 20, 20],
    "use_linear_projection": True,
    "sample_size": 64,
}
SD21_TEXT_ENCODER = {
    "vocab_size": 49408,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 23,
    "num_attention_heads": 16,
    "max_position_embeddings": 77,
    "hidden_act": "gelu",
    "projection_dim": 512,
}
SD21_VAE = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 2,
    "latent_channels": 4,
    "norm_num_groups": 32,
    "sample_size": 512,
}
SWINMR_MACS = 799_872_122_880
SWINMR_ATTENTION_MACS = SWINMR_MACS - 745_513_943_040


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def count_exactly(module: nn.Module, inputs: tuple, kwargs: dict | None = None):
    report = count_forward(module.eval(), inputs, kwargs)
    assert report.counted_on == "meta"
    assert report.note is None
    assert report.uncounted_operators == {}
    return report


@functools.cache
def swinmr(embed_dim: int = 180, groups: int = 6) -> nn.Module:
    """An independent implementation of SwinIR, with SwinMR's options (img_size only sizes ready-made masks)."""
    return SwinIR(
        img_size=64,
        in_chans=1,
        upscale=1,
        img_range=1.0,
        window_size=8,
        depths=[6] * groups,
        num_heads=[6] * groups,
        embed_dim=embed_dim,
        mlp_ratio=2,
        upsampler="",
        resi_connection="1conv",
    )


def test_resnet50():
    report = count_exactly(torchvision.models.resnet50(), (torch.zeros(1, 3, 224, 224),))
    assert report.macs == 4_089_184_256
    assert report.by_kind["linear"] == 2048 * 1000
    assert report.parameters == 25_557_032


def test_convnext_tiny():
    report = count_exactly(torchvision.models.convnext_tiny(), (torch.zeros(1, 3, 224, 224),))
    assert report.macs == 4_455_531_264


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("name", "macs"),
    [("vit_base_patch16_224", 17_563_828_224), ("swin_tiny_patch4_window7_224", 4_490_566_656)],
)
def test_timm_attention_fused_or_not(name, macs, fused):
    model = timm.create_model(name)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    report = count_exactly(model, (torch.zeros(1, 3, 224, 224),))
    assert report.macs == macs
    assert report.by_kind["attention"] > 0
    assert report.softmax_macs > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("embed_dim", "groups", "side", "macs", "parameters"),
    [
        (180, 6, 256, SWINMR_MACS, 11_497_681),
        (180, 6, 96, 112_482_017_280, 11_497_681),
        (60, 6, 256, 101_001_461_760, 1_337_761),
        (60, 4, 256, 68_065_689_600, 903_121),
    ],
)
def test_swinmr_of_an_independent_implementation(embed_dim, groups, side, macs, parameters):
    report = count_exactly(swinmr(embed_dim, groups), (torch.zeros(1, 1, side, side),))
    assert (report.macs, report.parameters) == (macs, parameters)


@pytest.mark.slow
def test_swinmr_without_its_attention_products():
    report = count_exactly(swinmr(), (torch.zeros(1, 1, 256, 256),))
    assert report.by_kind["attention"] == SWINMR_ATTENTION_MACS
    assert report.by_kind["convolution"] + report.by_kind["linear"] == 745_513_943_040


@pytest.mark.parametrize(
    ("file", "macs", "parameters"),
    [
        ("train_config_large.json", SWINMR_MACS, 11_497_681),
        ("train_config.json", 101_001_461_760, 1_337_761),
        ("train_config_small.json", 68_065_689_600, 903_121),
    ],
)
def test_swinmr_of_our_own_configs(request, file, macs, parameters):
    config = load_config(request.config.rootpath / "configs" / file).config
    built = build_model(config)
    report = count_exactly(built.module, (torch.zeros(1, 1, 256, 256),))
    assert (report.macs, report.parameters) == (macs, parameters)


def test_stable_diffusion_21_unet():
    with torch.device("meta"):
        unet = UNet2DConditionModel.from_config(SD21_UNET)
    report = count_exactly(unet, (meta(1, 4, 64, 64), meta(1), meta(1, 77, 1024)))
    assert (report.macs, report.parameters) == (402_128_732_160, 865_910_724)


def test_stable_diffusion_21_text_encoder():
    with torch.device("meta"):
        encoder = CLIPTextModel(CLIPTextConfig(**SD21_TEXT_ENCODER))
    report = count_exactly(encoder, (meta(1, 77, dtype=torch.long),))
    assert (report.macs, report.parameters) == (22_563_616_768, 340_387_840)


def test_stable_diffusion_21_vae_decoder():
    # decode() is not forward: the decoder's modules are called from outside the root's forward.
    class Decode(nn.Module):
        def __init__(self, vae: nn.Module):
            super().__init__()
            self.vae = vae

        def forward(self, latent):
            return self.vae.decode(latent).sample

    with torch.device("meta"):
        vae = AutoencoderKL.from_config(SD21_VAE)
    report = count_exactly(Decode(vae), (meta(1, 4, 64, 64),))
    assert report.macs == 1_257_259_466_752
    assert report.by_module["macs"] == report.macs
    by_name = {child["name"]: child["macs"] for child in report.by_module["children"][0]["children"]}
    assert by_name["encoder"] == 0
    # The post-quantization convolution is the rest: 64 x 64 x 4 x 4.
    assert by_name == {**by_name, "decoder": report.macs - 65_536, "post_quant_conv": 65_536}


@pytest.mark.slow
def test_flux_transformer():
    with torch.device("meta"):
        transformer = FluxTransformer2DModel.from_config(FLUX_TRANSFORMER)
    inputs = {
        "hidden_states": meta(1, 4096, 64),
        "encoder_hidden_states": meta(1, 512, 4096),
        "pooled_projections": meta(1, 768),
        "timestep": meta(1),
        "img_ids": meta(4096, 3),
        "txt_ids": meta(512, 3),
        "guidance": meta(1),
    }
    report = count_exactly(transformer, (), inputs)
    assert (report.macs, report.parameters) == (37_192_326_709_248, 11_901_408_320)
    assert report.input_shapes[0] == [1, 4096, 64]


def test_linear_in_the_batch_and_the_same_twice():
    model = swinmr(60, 1)
    one, again, seven = (count_forward(model, (torch.zeros(n, 1, 32, 32),)) for n in (1, 1, 7))
    assert one == again
    assert seven.macs == 7 * one.macs
    assert seven.by_kind == {kind: 7 * macs for kind, macs in one.by_kind.items()}
    assert seven.parameters == one.parameters
