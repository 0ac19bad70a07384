"""How much noise there is at each time step, and what image, noise and prediction have to do with each other.

x_t = sqrt(a_t) image + sqrt(1 - a_t) noise, with a_t falling from nearly 1 to nearly 0 (Ho et al. 2020, eq. 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from swinmr_profiling.configs.sections.diffusion import DiffusionSection

Objective = Literal["epsilon", "v", "x0"]
# Nichol and Dhariwal 2021, eq. 17 and the text below it.
COSINE_OFFSET, LARGEST_BETA = 0.008, 0.999


def linear_betas(timesteps: int, start: float, end: float) -> Tensor:
    """Betas (timesteps,), float64, rising evenly (Ho et al. 2020: 1e-4 to 0.02 over 1000)."""
    return torch.linspace(start, end, timesteps, dtype=torch.float64)


def cosine_betas(timesteps: int) -> Tensor:
    """Betas (timesteps,), float64, of a_t = cos^2(((t / T) + 0.008) / 1.008 x pi / 2), each at most 0.999."""

    def kept(time: float) -> float:
        return math.cos((time + COSINE_OFFSET) / (1 + COSINE_OFFSET) * math.pi / 2) ** 2

    betas = [1 - kept((t + 1) / timesteps) / kept(t / timesteps) for t in range(timesteps)]
    return torch.tensor(betas, dtype=torch.float64).clamp_max(LARGEST_BETA)


@dataclass(frozen=True)
class NoiseSchedule:
    """kept: a_t (T,), float64: the share of the image's variance that is left after each step (alphas_cumprod)."""

    kept: Tensor

    @property
    def timesteps(self) -> int:
        """T."""
        return len(self.kept)

    def factors(self, timesteps: Tensor) -> tuple[Tensor, Tensor]:
        """sqrt(a_t) and sqrt(1 - a_t) of time steps (B,), each (B, 1, 1, 1), float32; all on the CPU."""
        kept = self.kept[timesteps][:, None, None, None]
        return kept.sqrt().float(), (1 - kept).sqrt().float()

    def signal_to_noise(self, timesteps: Tensor) -> Tensor:
        """a_t / (1 - a_t) of time steps (B,), float64; all on the CPU."""
        kept = self.kept[timesteps]
        return kept / (1 - kept)


def build_schedule(section: DiffusionSection) -> NoiseSchedule:
    """The schedule of `training.diffusion`."""
    if section.schedule == "cosine":
        betas = cosine_betas(section.timesteps)
    else:
        betas = linear_betas(section.timesteps, section.beta_start, section.beta_end)
    return NoiseSchedule(torch.cumprod(1 - betas, 0))


def prediction_target(
    objective: Objective, image: Tensor, noise: Tensor, signal: Tensor, spread: Tensor
) -> Tensor:
    """What the network should make of sqrt(a) image + sqrt(1 - a) noise.

    signal, spread: sqrt(a) and sqrt(1 - a). v is sqrt(a) noise - sqrt(1 - a) image (Salimans and Ho 2022, app. D).
    """
    if objective == "epsilon":
        return noise
    return image if objective == "x0" else signal * noise - spread * image


def predicted_image(
    objective: Objective, output: Tensor, noisy: Tensor, signal: Tensor, spread: Tensor
) -> Tensor:
    """The image that a prediction amounts to: `prediction_target` solved for it."""
    if objective == "x0":
        return output
    if objective == "v":
        return signal * noisy - spread * output
    return (noisy - spread * output) / signal


def min_snr_weights(objective: Objective, snr: Tensor, gamma: float | None) -> Tensor:
    """Weight of each sample's squared error; ones where gamma is None.

    min(SNR, gamma) for the image, which is that over SNR for the noise and over SNR + 1 for v (Hang et al. 2023,
    eq. 9 and section 3.4).
    """
    if gamma is None:
        return torch.ones_like(snr)
    capped = snr.clamp_max(gamma)
    return {"x0": capped, "epsilon": capped / snr, "v": capped / (snr + 1)}[objective]
