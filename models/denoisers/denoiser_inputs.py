"""What a denoiser takes: the noisy image, with the condition behind it in the same tensor, and the time step.

Inside, a time step is a vector: sines and cosines of geometrically spaced frequencies.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import DiTDenoiserModelConfig, UNetDenoiserModelConfig
from swinmr_profiling.models.inputs import InputSpec, Purpose, cross_check_hw

MAX_PERIOD = 10_000.0


def denoiser_inputs(
    config: ExperimentConfig, model: UNetDenoiserModelConfig | DiTDenoiserModelConfig
) -> dict[Purpose, tuple[InputSpec, ...]]:
    """Image and time step of `unet_denoiser` and `dit_denoiser` for each purpose; model: the config's section."""
    sizes: dict[Purpose, tuple[int, int]] = {
        "inference": model.image_hw,
        "training": config.training_patch_hw or model.image_hw,
        "cross_check": cross_check_hw(model.image_hw, model.side_multiple),
    }
    return {
        purpose: (InputSpec((model.network_input_channels, *hw)), InputSpec((), "int64"))
        for purpose, hw in sizes.items()
    }


def timestep_embedding(timesteps: Tensor, dim: int) -> Tensor:
    """Time steps (B,), of any number type, to (B, dim), float32: cosines, then sines.

    Frequencies 10000^(-i / (dim / 2)) (Ho et al. 2020, after Vaswani et al. 2017; cosines first, as ADM and DiT).
    An odd dim ends with a 0.
    """
    half = dim // 2
    steps = torch.arange(half, dtype=torch.float32, device=timesteps.device)
    angles = timesteps.float()[:, None] * torch.exp(-math.log(MAX_PERIOD) / half * steps)
    embedding = torch.cat([angles.cos(), angles.sin()], dim=-1)
    return torch.nn.functional.pad(embedding, (0, dim % 2)) if dim % 2 else embedding
