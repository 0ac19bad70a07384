"""Whole networks with independently derived MACs, for benchmark_counters.py."""

from collections.abc import Callable

import timm
import torch
import torchvision
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.scripts.counter_cases.case_modules import Case

FLUX_TRANSFORMER = {
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
    "axes_dims_rope": [16, 56, 56],
}


def swinmr(depths: int = 6, embed_dim: int = 180) -> nn.Module:
    """SwinMR as published, or with fewer groups and channels."""
    model = {
        "net_type": "swinir",
        "img_size": 256,
        "window_size": 8,
        "depths": [6] * depths,
        "num_heads": [6] * depths,
        "embed_dim": embed_dim,
        "mlp_ratio": 2,
    }
    return build_model(config_from_dict({"experiment_name": "benchmark", "model": model})).module.eval()


def _network(name: str, macs: int, build: Callable[[], nn.Module], *shape: int) -> Case:
    return Case(name, macs, lambda: (build().eval(), (torch.zeros(1, *shape),)))


NETWORKS = (
    _network("ResNet-50, 224", 4_089_184_256, torchvision.models.resnet50, 3, 224, 224),
    _network("ViT-B/16, 224", 17_563_828_224, lambda: timm.create_model("vit_base_patch16_224"), 3, 224, 224),
    _network(
        "Swin-T, 224", 4_490_566_656, lambda: timm.create_model("swin_tiny_patch4_window7_224"), 3, 224, 224
    ),
    _network("ConvNeXt-T, 224", 4_455_531_264, torchvision.models.convnext_tiny, 3, 224, 224),
    # 112,482,017,280 at 96 x 96; everything is linear in pixels.
    _network("SwinMR as published, 64", 112_482_017_280 * 64 * 64 // (96 * 96), swinmr, 1, 64, 64),
    _network(
        "LSTM(256, 512, 2 layers), 50 steps",
        50 * 4 * 512 * (256 + 3 * 512),
        lambda: nn.LSTM(256, 512, 2),
        50,
        256,
    ),
)


def flux_on_meta() -> tuple[nn.Module, tuple, dict]:
    """FLUX.1-dev's transformer at 1024 x 1024 pixels (4096 tokens) and 512 text tokens."""
    from diffusers import FluxTransformer2DModel

    with torch.device("meta"):
        module = FluxTransformer2DModel.from_config(FLUX_TRANSFORMER).eval()
        inputs = {
            "hidden_states": torch.empty(1, 4096, 64),
            "encoder_hidden_states": torch.empty(1, 512, 4096),
            "pooled_projections": torch.empty(1, 768),
            "timestep": torch.empty(1),
            "img_ids": torch.empty(4096, 3),
            "txt_ids": torch.empty(512, 3),
            "guidance": torch.empty(1),
        }
    return module, (), inputs


def swinmr_on_meta() -> tuple[nn.Module, tuple, dict]:
    return swinmr().to("meta"), (torch.empty(1, 1, 256, 256, device="meta"),), {}
