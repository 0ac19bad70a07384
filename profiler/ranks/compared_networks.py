"""Networks whose predicted memory on a rank is held against a real step: small, with activations and buffers at least
half of the peak, and gradients above 25 MiB, so that DDP makes two buckets."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.registry import build_model

# Name -> model section, samples of a rank.
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "SwinMR": (
        {"net_type": "swinmr", "img_size": 32, "depths": [2, 2, 2], "num_heads": [6, 6, 6], "embed_dim": 300},
        2,
    ),
    "U-Net": ({"net_type": "unet_denoiser", "img_size": 32, "base_channels": 32}, 8),
    "DiT": (
        {
            "net_type": "dit_denoiser",
            "img_size": 32,
            "embed_dim": 384,
            "depth": 3,
            "num_heads": 6,
            "patch_size": 2,
        },
        6,
    ),
    "timm ViT": (
        {
            "net_type": "timm",
            "name": "vit_small_patch16_224",
            "img_size": 224,
            "num_classes": 10,
            "kwargs": {"depth": 4},
        },
        6,
    ),
}
# Name -> keys of `training`.
STRATEGIES: dict[str, dict[str, Any]] = {
    "DDP": {"strategy": "ddp"},
    "ZeRO-1": {"strategy": "zero1"},
    "FSDP2": {"strategy": "fsdp"},
    "FSDP2, kept": {"strategy": "fsdp", "fsdp": {"reshard_after_forward": False}},
}


def compared_config(network: str, strategy: str) -> ExperimentConfig:
    """In fp32 with AdamW; attention as operators of their own: the CPU's fused kernel is not on the meta device."""
    section, _ = NETWORKS[network]
    loss = {"type": "auto" if section["net_type"] == "timm" else "mse"}
    training = {"ema_decay": 0.0, "optimizer": {"type": "adamw"}, "loss": loss, **STRATEGIES[strategy]}
    return config_from_dict(
        {
            "model": section,
            "data": {"use_patches": False},
            "training": training,
            "system": {"attention": "math"},
        }
    )


def build_compared(config: ExperimentConfig) -> BuiltModel:
    """The network, on the way that a trace without data takes."""
    built = build_model(config)
    if built.net_type == "swinir":
        built.module.attention = "matmul"  # type: ignore[assignment]
    return built
