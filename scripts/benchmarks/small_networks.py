"""Small networks trained with plain attention, which a CPU and tensors without data compute in the same way."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.registry import build_model


def plain_config(model: dict[str, Any], **training: Any) -> ExperimentConfig:
    """Of a model section. Without data torch takes the plain attention, on a CPU its flash attention."""
    data = {} if model["net_type"] == "timm" else {"use_patches": False}
    return config_from_dict(
        {"model": model, "data": data, "training": training, "system": {"attention": "math"}}
    )


def built_plain(config: ExperimentConfig) -> BuiltModel:
    """Its network; a SwinIR with attention of plain products."""
    built = build_model(config)
    if config.model.net_type == "swinir":
        network: Any = built.module
        network.attention = "matmul"
    return built
