"""How much noise there is at each time step, what it has to do with image and prediction, and the way back to an image.

x_t = sqrt(a_t) image + sqrt(1 - a_t) noise, with a_t falling from nearly 1 to nearly 0 (Ho et al. 2020, eq. 4). From
noise to an image go DDIM and ancestral sampling (DDPM), over any number of time steps. Both are one family (Song et al.
2021, eq. 12 and 16): DDIM adds no noise between steps, ancestral sampling as much as the diffusion itself would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from swinmr_profiling.configs.sections.denoiser import DiffusionSection

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
    betas = (
        cosine_betas(section.timesteps)
        if section.schedule == "cosine"
        else linear_betas(section.timesteps, section.beta_start, section.beta_end)
    )
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


# eta of the paper: the share of the diffusion's own noise that a step adds.
ETA = {"ddim": 0.0, "ancestral": 1.0}


def sampling_timesteps(timesteps: int, steps: int) -> list[int]:
    """`steps` of the schedule's time steps, falling evenly from its last one on ("trailing").

    The first is pure noise as in training, which spacing that starts below the last step is not (Lin et al. 2024).
    Raises ValueError for more steps than there are.
    """
    if not 1 <= steps <= timesteps:
        raise ValueError(f"{steps} sampling steps of {timesteps}")
    # The very expression of diffusers: written otherwise, ties (48 steps of 1000: 937.5) round to the other side.
    return [int(t) - 1 for t in np.round(np.arange(timesteps, 0, -timesteps / steps))[:steps]]


def spacing(timesteps: int, steps: int) -> str:
    """The time steps that are taken, in words, beside those of diffusers' `DDIMScheduler`."""
    own = sampling_timesteps(timesteps, steps)
    leading = [index * (timesteps // steps) for index in reversed(range(steps))]
    return (
        f'trailing, {_ends(own)} of {timesteps}: as diffusers\' timestep_spacing "trailing"; its default "leading" '
        f"takes {_ends(leading)}"
    )


def _ends(timesteps: list[int]) -> str:
    shown = timesteps if len(timesteps) <= 4 else [*timesteps[:2], "...", timesteps[-1]]
    return ", ".join(map(str, shown))


def step_back(
    noisy: Tensor, image: Tensor, kept: float, kept_next: float, eta: float, noise: Tensor | None
) -> Tensor:
    """x at the next, less noisy, time step.

    Args:
        noisy: x_t. image: the estimate of the image at t. noise: standard normal, needed where eta is not 0.
        kept, kept_next: a_t and a of the next time step, 1 for the end, where the result is the estimate itself.
    """
    residual = (noisy - kept**0.5 * image) / (1 - kept) ** 0.5
    deviation = eta * ((1 - kept_next) / (1 - kept) * (1 - kept / kept_next)) ** 0.5
    result = kept_next**0.5 * image + max(1 - kept_next - deviation**2, 0.0) ** 0.5 * residual
    return result if deviation == 0 else result + deviation * noise


def sample(
    estimate: Callable[[Tensor, int], Tensor],
    schedule: NoiseSchedule,
    steps: int,
    sampler: str,
    draw: Callable[[], Tensor],
) -> Tensor:
    """An image (B, C, H, W) out of noise.

    Args:
        estimate: (x_t, t) to the estimate of the image, made to agree with whatever is known of it.
        steps: how many of the schedule's time steps are taken.
        sampler: a key of ETA.
        draw: standard normal noise (B, C, H, W), once to begin with, then once a step where the sampler adds any.
    """
    eta = ETA[sampler]
    timesteps = sampling_timesteps(schedule.timesteps, steps)
    kept = [float(schedule.kept[t]) for t in timesteps] + [1.0]
    noisy = draw()
    for position, timestep in enumerate(timesteps):
        image = estimate(noisy, timestep)
        last = position == len(timesteps) - 1
        noise = draw() if eta and not last else None
        noisy = step_back(noisy, image, kept[position], kept[position + 1], eta, noise)
    return noisy


def guided(conditional: Tensor, unconditional: Tensor, guidance: float) -> Tensor:
    """unconditional + guidance x (conditional - unconditional) (Ho and Salimans 2021, with w + 1 as the weight)."""
    return torch.lerp(unconditional, conditional, guidance)
