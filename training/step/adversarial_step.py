"""The training step of a generator beside a discriminator, in BasicSR's order: predicted and measured, not trained.

SRGANModel and ESRGANModel (`relativistic`) of BasicSR 1.4: what is held across the step, and freed when, is theirs.
Batch and output of the step before live until the new ones are there; gradients until their own network's turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.adversarial import AdversarialSection
from swinmr_profiling.models.discriminators import UNetDiscriminatorSN, VGGStyleDiscriminator
from swinmr_profiling.training.step.losses import build_loss, first_tensor
from swinmr_profiling.training.step.optimisation import build_optimizer
from swinmr_profiling.training.step.training_step import autocast_dtype


def build_discriminator(section: AdversarialSection) -> nn.Module:
    """The discriminator of `training.adversarial`."""
    if section.discriminator == "vgg":
        return VGGStyleDiscriminator(section.in_chans, section.width, section.input_size)
    return UNetDiscriminatorSN(section.in_chans, section.width, section.skip_connection)


def adversarial_loss(kind: str, judged: Tensor, real: bool, *, of_discriminator: bool) -> Tensor:
    """A scalar. kind: "vanilla" (cross entropy), "lsgan" (squares), "wgan", "wgan_softplus" or "hinge"."""
    if kind == "hinge":
        if not of_discriminator:
            return -judged.mean()
        return torch.relu(1 + (-judged if real else judged)).mean()
    if kind == "wgan":
        return -judged.mean() if real else judged.mean()
    if kind == "wgan_softplus":
        return F.softplus(-judged).mean() if real else F.softplus(judged).mean()
    wanted = judged.new_ones(judged.size()) * (1.0 if real else 0.0)
    return (
        F.binary_cross_entropy_with_logits(judged, wanted)
        if kind == "vanilla"
        else F.mse_loss(judged, wanted)
    )


class AdversarialStep:
    """A `TrainingStep`: networks `net_g`, `net_d` and the average `net_g_ema`, each network with its optimizer."""

    def __init__(
        self,
        config: ExperimentConfig,
        generator: nn.Module,
        loss: nn.Module,
        make_batch: Callable[[int], dict[str, Any]],
    ) -> None:
        """loss: of the generator beside the adversarial one. make_batch: in the loader's layout."""
        self.config, self.section = config, config.training.adversarial
        self.net_g, self.loss, self.make_batch = generator, loss, make_batch
        self.gt: Tensor | None = None

    def setup(self, device: torch.device) -> None:
        training = self.config.training
        self.device = device
        self.autocast_dtype = autocast_dtype(self.config, "cuda")
        self.net_g = self.net_g.to(device).train()
        self.net_g_ema = None
        if training.ema_decay > 0:
            self.net_g_ema = copy.deepcopy(self.net_g).eval().requires_grad_(False)
        with torch.device(device):
            self.net_d = build_discriminator(self.section).train()
        self.loss = self.loss.to(device)
        self.of_g = build_optimizer(self.net_g.parameters(), training.optimizer)
        optimizer = training.optimizer.model_copy(update={"type": self.section.optimizer})
        self.of_d = build_optimizer(self.net_d.parameters(), optimizer)

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        made = self.make_batch(size)
        return made["input"], made["target"]

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        enabled = self.autocast_dtype is not None
        self.lq, self.gt = batch
        with torch.autocast(self.device.type, self.autocast_dtype, enabled=enabled):
            kept = self._generator()
            self._discriminator()
        del kept
        if self.net_g_ema is not None:
            decay = self.config.training.ema_decay
            with torch.no_grad():
                for average, now in zip(self.net_g_ema.parameters(), self.net_g.parameters(), strict=True):
                    average.mul_(decay).add_(now, alpha=1 - decay)

    def _judged_as(self, judged: Tensor, real: bool, *, of_discriminator: bool) -> Tensor:
        return adversarial_loss(self.section.type, judged, real, of_discriminator=of_discriminator)

    def _generator(self) -> list[Any]:
        """Its update; what its names hold until the step is over."""
        assert self.gt is not None
        self.net_d.requires_grad_(False)
        self.of_g.zero_grad()
        self.output = first_tensor(self.net_g(self.lq))
        total, parts = self.loss(self.output, self.gt)
        kept: list[Any] = [parts]
        if self.section.relativistic:
            real = self.net_d(self.gt).detach()
            fake = self.net_d(self.output)
            first = self._judged_as(real - fake.mean(), False, of_discriminator=False)
            second = self._judged_as(fake - real.mean(), True, of_discriminator=False)
            adversarial = self.section.weight * (first + second) / 2
            kept += [real, first, second]
        else:
            fake = self.net_d(self.output)
            adversarial = self.section.weight * self._judged_as(fake, True, of_discriminator=False)
        total = total + adversarial
        total.backward()
        self.of_g.step()
        return [*kept, fake, adversarial, total]

    def _discriminator(self) -> None:
        assert self.gt is not None
        self.net_d.requires_grad_(True)
        self.of_d.zero_grad()
        half = 0.5 if self.section.relativistic else 1.0
        mean_of_fake: Tensor | float = 0.0
        if self.section.relativistic:
            judged = self.net_d(self.output).detach()
            mean_of_fake = judged.mean()
        real = self.net_d(self.gt)
        compared = real - mean_of_fake if self.section.relativistic else real
        of_real = self._judged_as(compared, True, of_discriminator=True) * half
        of_real.backward()
        fake = self.net_d(self.output.detach())
        compared = fake - real.detach().mean() if self.section.relativistic else fake
        of_fake = self._judged_as(compared, False, of_discriminator=True) * half
        of_fake.backward()
        self.of_d.step()


class ConfiguredAdversarialStep:
    """What `training.adversarial` describes, made anew for a run (as `ConfiguredStep`)."""

    def __init__(
        self,
        config: ExperimentConfig,
        generator: nn.Module,
        make_batch: Callable[[int], dict[str, Any]],
        *,
        for_prediction: bool,
    ) -> None:
        self.config, self.generator, self.make_batch = config, generator, make_batch
        self.loss = build_loss(config, for_prediction=for_prediction)

    def made(self, copied: Callable[[Any], Any] = lambda parts: parts) -> AdversarialStep:
        """The step before its `setup`, over copies of the generator and the loss."""
        generator, loss = copied((self.generator, self.loss))
        return AdversarialStep(self.config, generator, loss, self.make_batch)
