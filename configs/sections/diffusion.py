"""How a denoiser is trained (`training.diffusion`) and how images are sampled with it (`evaluation.sampling`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    Count,
    Expected,
    Flag,
    NotNegative,
    PositiveOrNull,
    Rate,
    Section,
    Seed,
    WholeNumber,
)

_Beta = Annotated[Annotated[float, Field(gt=0, lt=1)], Expected("number above 0, below 1")]


class DiffusionSection(Section):
    """What a denoiser learns. Unused by other networks."""

    objective: Annotated[Literal["epsilon", "v", "x0"], Expected('"epsilon", "v" or "x0"')] = Field(
        "epsilon",
        description="What is predicted: the noise, sqrt(a) noise - sqrt(1 - a) image, or the image.",
    )
    schedule: Annotated[Literal["linear", "cosine"], Expected('"linear" or "cosine"')] = Field(
        "linear", description="Noise over time: DDPM's linear betas, or Nichol and Dhariwal's cosine."
    )
    timesteps: Annotated[Annotated[int, Field(ge=2, le=10**5)], Expected("whole number, 2 to 10^5")] = Field(
        1000, description="Steps of the noise schedule."
    )
    beta_start: _Beta = Field(1e-4, description="First beta of `linear`. Unused by `cosine`.")
    beta_end: _Beta = Field(0.02, description="Last beta of `linear`. Unused by `cosine`.")
    min_snr_gamma: PositiveOrNull = Field(
        None,
        description="Cap of the signal-to-noise ratio in the loss's weights (5 is usual). null: no weights.",
    )
    condition_dropout: Rate = Field(
        0.0, description="Share of samples whose condition is left out (zeros), which guidance needs."
    )

    def problems(self) -> Problems:
        """Noise that does not grow."""
        if self.beta_end <= self.beta_start:
            text = f"beta_end {self.beta_end:g} is not above beta_start {self.beta_start:g}: noise must grow"
            yield "beta_end", text


class SamplingSection(Section):
    """How a denoiser makes a reconstruction. Unused by other networks."""

    sampler: Annotated[Literal["ddim", "ancestral"], Expected('"ddim" or "ancestral"')] = Field(
        "ddim", description="`ddim` adds no noise between steps, `ancestral` (DDPM) does."
    )
    sampling_steps: Count = Field(50, description="Steps of a reconstruction, spread over the schedule.")
    samples_per_slice: Count = Field(
        1, description="Samples of each slice. Their mean is the reconstruction, their deviation is reported."
    )
    guidance: NotNegative = Field(
        1.0, description="Weight of the condition. 1: none beyond it; else every step asks the network twice."
    )
    data_consistency: Flag = Field(
        True, description="Measured k-space replaces the estimate's at every step."
    )
    clip: Flag = Field(
        True, description="Estimates of the image are held in -1..1, the range of `min_max` and `max`."
    )
    seed: Seed = Field(0, description="Seed of the starting noise. Each slice and sample has its own.")
    validation_steps: WholeNumber = Field(
        0, description="Sampling steps in validation, one sample a slice. 0: the denoising loss alone."
    )
