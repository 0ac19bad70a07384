"""Discriminators: the two of BasicSR's option files, from their published architectures, and classes of the user's."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import spectral_norm

from swinmr_profiling.configs.sections.adversarial import AdversarialSection
from swinmr_profiling.models.custom.network import users_network
from swinmr_profiling.models.errors import ModelError

SLOPE = 0.2
# Widths of the stages of the VGG-style network, in units of its first; one more stage where images are 256 pixels.
STAGES = (1, 2, 4, 8, 8)
LAST_SIDE, HIDDEN = 4, 100


def build_discriminator(section: AdversarialSection, *, trust_config: bool) -> nn.Module:
    """The discriminator of `training.adversarial`, on the CPU. Raises ModelError, also for `custom` without consent."""
    if section.target is not None:
        return users_network(
            "training.adversarial.target",
            section.target,
            section.target_folder or ".",
            section.kwargs,
            section.command_line,
            trust_config=trust_config,
        )
    if section.discriminator == "vgg":
        return VGGStyleDiscriminator(section.in_chans, section.width, section.input_size)
    return UNetDiscriminatorSN(section.in_chans, section.width, section.skip_connection)


class VGGStyleDiscriminator(nn.Module):
    """SRGAN's (Ledig et al. 2017, figure 4), with BasicSR's 4 x 4 strided convolutions: (B, C, S, S) to (B, 1)."""

    def __init__(self, in_chans: int, width: int, side: int) -> None:
        """side: 128 or 256, which its last layers are made for. Raises ModelError for another."""
        super().__init__()
        if side not in (128, 256):
            raise ModelError(f"training.adversarial.input_size: 128 or 256, not {side}")
        self.side = side
        layers: list[nn.Module] = []
        channels = in_chans
        for number, factor in enumerate(STAGES + STAGES[-1:] * (side == 256)):
            out = factor * width
            layers.append(nn.Conv2d(channels, out, 3, 1, 1, bias=not number))
            layers += [nn.BatchNorm2d(out)] if number else []
            layers += [nn.LeakyReLU(SLOPE, inplace=True), nn.Conv2d(out, out, 4, 2, 1, bias=False)]
            layers += [nn.BatchNorm2d(out), nn.LeakyReLU(SLOPE, inplace=True)]
            channels = out
        self.features = nn.Sequential(*layers)
        hidden = nn.Linear(channels * LAST_SIDE**2, HIDDEN)
        self.judge = nn.Sequential(hidden, nn.LeakyReLU(SLOPE, inplace=True), nn.Linear(HIDDEN, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Raises ModelError for images of another side."""
        if image.shape[2] != self.side:
            raise ModelError(
                f"training.adversarial: this discriminator takes {self.side} pixels, and the images have "
                f"{image.shape[2]}: data.patch_size times the scale must be input_size"
            )
        return self.judge(self.features(image).flatten(1))


class UNetDiscriminatorSN(nn.Module):
    """Real-ESRGAN's U-Net with spectral norms (Wang et al. 2021): (B, C, H, W) to a map (B, 1, H, W)."""

    def __init__(self, in_chans: int, width: int, skips: bool) -> None:
        super().__init__()
        self.skips = skips

        def normed(given: int, made: int, kernel: int, stride: int) -> nn.Module:
            return spectral_norm(nn.Conv2d(given * width, made * width, kernel, stride, 1, bias=False))

        self.first = nn.Conv2d(in_chans, width, 3, 1, 1)
        self.down = nn.ModuleList([normed(1, 2, 4, 2), normed(2, 4, 4, 2), normed(4, 8, 4, 2)])
        self.up = nn.ModuleList([normed(8, 4, 3, 1), normed(4, 2, 3, 1), normed(2, 1, 3, 1)])
        self.last = nn.ModuleList([normed(1, 1, 3, 1), normed(1, 1, 3, 1)])
        self.judge = nn.Conv2d(width, 1, 3, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        levels = [F.leaky_relu(self.first(image), SLOPE, inplace=True)]
        for layer in self.down:
            levels.append(F.leaky_relu(layer(levels[-1]), SLOPE, inplace=True))
        x = levels.pop()
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = F.leaky_relu(layer(x), SLOPE, inplace=True)
            if self.skips:
                x = x + levels.pop()
        for layer in self.last:
            x = F.leaky_relu(layer(x), SLOPE, inplace=True)
        return self.judge(x)
