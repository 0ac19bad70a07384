"""The `training.adversarial` section: a discriminator beside the network, as BasicSR trains one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.configs.field_types import Expected, Flag, NotNegative, Section, Size


class AdversarialSection(Section):
    """A discriminator, with its loss and optimizer: profiled, in BasicSR's order, and not trained here."""

    weight: NotNegative = Field(
        0.0, description="Weight of the adversarial loss in the generator's. 0: no discriminator."
    )
    type: Annotated[
        Literal["vanilla", "lsgan", "wgan", "wgan_softplus", "hinge"],
        Expected('"vanilla", "lsgan", "wgan", "wgan_softplus" or "hinge"'),
    ] = Field("vanilla", description="The adversarial loss.")
    relativistic: Flag = Field(
        False, description="Each judgement relative to the mean of the other kind's, as in ESRGAN."
    )
    discriminator: Annotated[Literal["unet_sn", "vgg"], Expected('"unet_sn" or "vgg"')] = Field(
        "unet_sn", description="Real-ESRGAN's U-Net with spectral norms, or SRGAN's."
    )
    in_chans: Size = Field(3, description="Channels of the images that it judges.")
    width: Size = Field(64, description="Channels of its first layer.")
    input_size: Size = Field(128, description="Side of the images, for `vgg` alone: 128 or 256 pixels.")
    skip_connection: Flag = Field(True, description="Skips of `unet_sn`.")
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], Expected('"adam", "adamw" or "sgd"')] = Field(
        "adam", description="The discriminator's optimizer."
    )
