"""The `model` sections of diffusion denoisers, how they are trained and how images are sampled with them.

These two are `training.diffusion` and `evaluation.sampling`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    BlockCounts,
    Count,
    Counts,
    Expected,
    Flag,
    ImageNetworkSection,
    ImageSize,
    ImageSizeOrNull,
    Kwargs,
    NotNegative,
    Positive,
    PositiveOrNull,
    Rate,
    Section,
    Seed,
    Size,
    SizeOrNull,
    WholeNumber,
)
from swinmr_profiling.configs.network_limits import diffusers_problems, dit_problems, unet_problems

CONDITIONAL_TEXT = "The zero-filled image is an input too, concatenated to the noisy image."
IMAGE_CHANNELS_TEXT = "Channels of an image: 1 for magnitude, 2 for real and imaginary."


class _DenoiserSection(ImageNetworkSection):
    if TYPE_CHECKING:
        conditional: bool

    @property
    def network_input_channels(self) -> int:
        """Channels of the network's first input: the noisy image, and the condition behind it."""
        return self.in_chans * (1 + self.conditional)


class UNetDenoiserModelConfig(_DenoiserSection):
    """The convolutional denoiser of DDPM (Ho et al. 2020) and ADM (Dhariwal and Nichol 2021)."""

    net_type: Annotated[Literal["unet_denoiser"], Expected('"unet_denoiser"')] = Field(
        description="The network."
    )
    img_size: ImageSize = Field(
        256, description="Size of a whole image in pixels: what is profiled and sampled."
    )
    in_chans: Size = Field(1, description=IMAGE_CHANNELS_TEXT)
    conditional: Flag = Field(True, description=CONDITIONAL_TEXT)
    base_channels: Size = Field(64, description="Feature channels that `channel_multipliers` multiply.")
    channel_multipliers: BlockCounts = Field(
        [1, 2, 2, 4, 4], description="Channels of each level. From one level to the next, sides are halved."
    )
    num_res_blocks: Annotated[int, Field(ge=1, le=64), Expected("whole number, 1 to 64")] = Field(
        2, description="Residual blocks per level on the way down; one more on the way up."
    )
    attention_resolutions: Counts = Field(
        [16],
        description="Levels with attention, by the shorter side of their features (of `img_size`), in pixels.",
    )
    head_channels: Size = Field(
        64, description="Channels of an attention head. Divides the channels of every level with attention."
    )
    scale_shift: Flag = Field(
        True,
        description="The time step scales and shifts normed features (ADM). false: it is added (DDPM).",
    )
    num_groups: Size = Field(32, description="Groups of the group norms. Divides every level's channels.")
    drop_rate: Rate = Field(0.0, description="Dropout in the residual blocks.")

    @property
    def side_multiple(self) -> int:
        """What divides the sides of every image: they are halved between levels."""
        return 2 ** (len(self.channel_multipliers) - 1)

    def problems(self) -> Problems:
        """What the network would refuse."""
        return unet_problems(self)


class DiTDenoiserModelConfig(_DenoiserSection):
    """The diffusion transformer with adaLN-zero (Peebles and Xie 2023). The defaults are DiT-S/8."""

    net_type: Annotated[Literal["dit_denoiser"], Expected('"dit_denoiser"')] = Field(
        description="The network."
    )
    img_size: ImageSize = Field(
        256, description="Size of a whole image (or latent) in pixels: what is profiled and sampled."
    )
    in_chans: Size = Field(1, description=IMAGE_CHANNELS_TEXT)
    out_chans: SizeOrNull = Field(
        None,
        description="Channels of the output. null: `in_chans`. Others are only profiled (8 of 4 in the paper).",
    )
    conditional: Flag = Field(True, description=CONDITIONAL_TEXT)
    patch_size: Annotated[Literal[2, 4, 8], Expected("2, 4 or 8")] = Field(
        8, description="Side in pixels of the square that becomes one token."
    )
    embed_dim: Size = Field(384, description="Width of a token. Divisible by `num_heads` and by 4.")
    depth: Annotated[int, Field(ge=1, le=1024), Expected("whole number, 1 to 1024")] = Field(
        12, description="Transformer blocks."
    )
    num_heads: Annotated[int, Field(ge=1, le=1024), Expected("whole number, 1 to 1024")] = Field(
        6, description="Attention heads of a block."
    )
    mlp_ratio: Positive = Field(4.0, description="Hidden channels of the MLP over `embed_dim`.")
    num_classes: Annotated[
        Annotated[int, Field(ge=1, le=10**6)] | None, Expected("whole number, 1 to 10^6, or null")
    ] = Field(
        None,
        description="A class number is a third input, as in the paper (profiled only). null: there is none.",
    )

    @property
    def side_multiple(self) -> int:
        """What divides the sides of every image."""
        return self.patch_size

    def problems(self) -> Problems:
        """What the network would refuse."""
        return dit_problems(self)


class _DiffusersFields(Section):
    net_type: Annotated[Literal["diffusers"], Expected('"diffusers"')] = Field(
        description="A model class of the diffusers package."
    )


# `class` is the field's name in the file, and a word that Python keeps for itself.
_CLASS: dict[str, Any] = {
    "class": (
        Annotated[
            str,
            Field(pattern=r"^[A-Za-z_]\w*$", max_length=200),
            Expected("name of a class of diffusers"),
        ],
        Field(description="Name of the class, such as `UNet2DModel`."),
    )
}
_DiffusersClass = create_model("_DiffusersClass", __base__=_DiffusersFields, **_CLASS)


class DiffusersModelConfig(_DiffusersClass):
    """Any model class of the diffusers package, with random weights: nothing is downloaded."""

    config: Kwargs = Field({}, description="Arguments of the class, such as `in_channels`, `sample_size`.")
    img_size: ImageSizeOrNull = Field(
        None, description="Size of a whole image in pixels. null: `sample_size` of `config` or of the class."
    )
    conditional: Flag = Field(
        False,
        description="As for the others: half of `in_channels` is then the zero-filled image.",
    )
    text_tokens: SizeOrNull = Field(
        None,
        description="Tokens of the prompt. null: of `inputs`, else as the class's pipelines pad it (77 of CLIP).",
    )
    frames: SizeOrNull = Field(
        None, description="Frames of a video's latent. null: as `config` has them, else 1."
    )
    inputs: Annotated[
        dict[str, Any],
        Expected('object of inputs by name, such as {"encoder_hidden_states": [77, 1024]}'),
    ] = Field(
        {},
        description="Inputs of `forward` by name, in place of those that are derived from the class's signature and "
        "config: shapes without the batch, or of any kind.",
    )
    int64_inputs: Annotated[list[str], Expected("list of names")] = Field(
        [],
        description="Those shapes of `inputs` that are of whole numbers, such as `class_labels`. Others: float.",
    )

    @property
    def in_chans(self) -> int | None:
        """Channels of an image, None where `config` leaves `in_channels` to the class."""
        channels = self.config.get("in_channels")
        return channels // (1 + self.conditional) if isinstance(channels, int) else None

    def problems(self) -> Problems:
        """Inputs that contradict one another."""
        return diffusers_problems(self)


DenoiserModelConfig = UNetDenoiserModelConfig | DiTDenoiserModelConfig | DiffusersModelConfig
DENOISER_TYPES = ("unet_denoiser", "dit_denoiser", "diffusers")


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
