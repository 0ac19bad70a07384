"""From noise to an image: the steps of DDIM and of ancestral sampling (DDPM), over any number of time steps.

Both are one family (Song et al. 2021, eq. 12 and 16): DDIM adds no noise between steps, ancestral sampling as much
as the diffusion itself would have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from swinmr_profiling.training.denoising.noise_schedule import NoiseSchedule

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
