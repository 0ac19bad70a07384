"""The `training.adversarial` section: a discriminator beside the network, as four frameworks train one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.configs.field_types import (
    Expected,
    FilePathOrNull,
    Flag,
    Kwargs,
    NotNegative,
    OptimizerName,
    Problems,
    Section,
    Size,
    StepTargetOrNull,
)

# The frameworks whose order of events is known, as messages call them.
FRAMEWORKS = {"basicsr": "BasicSR", "kair": "KAIR", "trainner": "traiNNer-redux", "neosr": "neosr"}
# Those that judge relative to the other kind's mean.
RELATIVISTIC = ("basicsr", "kair")


class AdversarialSection(Section):
    """A discriminator, with its loss and optimizer: profiled, in its framework's order, and not trained here."""

    weight: NotNegative = Field(
        0.0, description="Weight of the adversarial loss in the generator's. 0: no discriminator."
    )
    order: Annotated[
        Literal["basicsr", "kair", "trainner", "neosr"],
        Expected('"basicsr", "kair", "trainner" or "neosr"'),
    ] = Field(
        "basicsr",
        description="Whose step it is: what is updated and let go when, in BasicSR, KAIR, traiNNer-redux or neosr.",
    )
    type: Annotated[
        Literal["vanilla", "lsgan", "wgan", "wgan_softplus", "hinge", "huber"],
        Expected('"vanilla", "lsgan", "wgan", "wgan_softplus", "hinge" or "huber"'),
    ] = Field("vanilla", description="The adversarial loss.")
    relativistic: Flag = Field(
        False,
        description="Each judgement relative to the mean of the other kind's, as in ESRGAN (`basicsr`, `kair`).",
    )
    discriminator: Annotated[
        Literal["unet_sn", "vgg", "custom"], Expected('"unet_sn", "vgg" or "custom"')
    ] = Field(
        "unet_sn",
        description="Real-ESRGAN's U-Net with spectral norms, SRGAN's, or the class that `target` names.",
    )
    in_chans: Size = Field(3, description="Channels of the images that it judges.")
    width: Size = Field(64, description="Channels of its first layer.")
    input_size: Size = Field(128, description="Side of the images, for `vgg` alone: 128 or 256 pixels.")
    skip_connection: Flag = Field(True, description="Skips of `unet_sn`.")
    target: StepTargetOrNull = Field(
        None,
        description="Class of a `custom` discriminator, imported with `--trust-config` alone: it takes images and "
        "gives one tensor.",
    )
    target_folder: FilePathOrNull = Field(
        None,
        description="Where its module is looked for, before the working directory. null: the config's folder.",
    )
    kwargs: Kwargs = Field({}, description="Arguments that class is called with.")
    command_line: Annotated[list[str], Expected("list of texts")] = Field(
        [], description="What its code finds in `sys.argv`, after the program's name."
    )
    optimizer: OptimizerName = Field("adam", description="The discriminator's optimizer.")

    def problems(self) -> Problems:
        """A class for `custom` alone; relative judgements where the framework has them."""
        if (self.discriminator == "custom") != (self.target is not None):
            yield "target", 'is needed for discriminator "custom", and for no other'
        if self.relativistic and self.order not in RELATIVISTIC:
            yield "relativistic", f"is not what {FRAMEWORKS[self.order]} trains with"

    @property
    def framework(self) -> str:
        """Whose order it is, as messages call it."""
        return FRAMEWORKS[self.order]
