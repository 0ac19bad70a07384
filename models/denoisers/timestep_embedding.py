"""A time step as a vector: sines and cosines of geometrically spaced frequencies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

MAX_PERIOD = 10_000.0


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
