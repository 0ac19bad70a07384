"""The training step of a generator beside a discriminator, as BasicSR and KAIR make it: predicted and measured.

SRGANModel and ESRGANModel (`relativistic`) of BasicSR 1.4: what is held across the step, and freed when, is theirs.
Batch and output of the step before live until the new ones are there; gradients until their own network's turn.
traiNNer-redux and neosr let go at other times: `adversarial_orders`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.step.optimizers import build_optimizer
from swinmr_profiling.training.step.training_step import autocast_dtype


def adversarial_loss(kind: str, judged: Tensor, real: bool, *, of_discriminator: bool) -> Tensor:
    """A scalar. kind: "vanilla" (cross entropy), "lsgan" (squares), "huber", "wgan", "wgan_softplus" or "hinge"."""
    if kind == "hinge":
        if not of_discriminator:
            return -judged.mean()
        return torch.relu(1 + (-judged if real else judged)).mean()
    if kind == "wgan":
        return -judged.mean() if real else judged.mean()
    if kind == "wgan_softplus":
        return F.softplus(-judged).mean() if real else F.softplus(judged).mean()
    wanted = judged.new_ones(judged.size()) * (1.0 if real else 0.0)
    if kind == "vanilla":
        return F.binary_cross_entropy_with_logits(judged, wanted)
    return F.huber_loss(judged, wanted) if kind == "huber" else F.mse_loss(judged, wanted)


class AdversarialStep:
    """A `TrainingStep`: networks `net_g`, `net_d` and the average `net_g_ema`, each network with its optimizer."""

    def __init__(
        self,
        config: ExperimentConfig,
        generator: nn.Module,
        discriminator: nn.Module,
        loss: nn.Module,
        make_batch: Callable[[int], dict[str, Any]],
        make_whole: Callable[[int], dict[str, Any]],
    ) -> None:
        """loss: of the generator beside the adversarial one. make_batch, make_whole: patches, and whole images for
        validation, in the loader's layout.
        """
        self.config, self.section = config, config.training.adversarial
        self.net_g, self.net_d = generator, discriminator
        self.loss, self.make_batch, self.make_whole = loss, make_batch, make_whole
        self.gt: Tensor | None = None

    def setup(self, device: torch.device) -> None:
        training = self.config.training
        self.device = device
        self.autocast_dtype = autocast_dtype(self.config, "cuda")
        self.net_g = self.net_g.to(device).train()
        self.net_g_ema = None
        if training.ema_decay > 0:
            self.net_g_ema = copy.deepcopy(self.net_g).eval().requires_grad_(False)
        self.net_d = self.net_d.to(device).train()
        self.loss = self.loss.to(device)
        self.of_g = build_optimizer(self.net_g.parameters(), training.optimizer)
        optimizer = training.optimizer.model_copy(update={"type": self.section.optimizer})
        self.of_d = build_optimizer(self.net_d.parameters(), optimizer)

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        made = self.make_batch(size)
        return made["input"], made["target"]

    def validation_batch(self, size: int) -> Tensor:
        return self.make_whole(size)["input"]

    def validate(self, batch: Tensor) -> Any:
        """The averaged generator on whole images."""
        network = self.net_g if self.net_g_ema is None else self.net_g_ema
        network.eval()
        with self._autocast():
            output = network(batch)
        network.train(network is self.net_g)
        return output

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        self.lq, self.gt = batch
        with self._autocast():
            kept = self._generator()
            self._discriminator()
        del kept
        self._average()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast_dtype, enabled=self.autocast_dtype is not None)

    def _average(self) -> None:
        if self.net_g_ema is None:
            return
        decay = self.config.training.ema_decay
        with torch.no_grad():
            for average, now in zip(self.net_g_ema.parameters(), self.net_g.parameters(), strict=True):
                average.mul_(decay).add_(now, alpha=1 - decay)

    def _judge(self, image: Tensor) -> Tensor:
        """What the discriminator says. Raises ModelError where that is no tensor."""
        judged = self.net_d(image)
        if not isinstance(judged, Tensor):
            name = type(self.net_d).__name__
            raise ModelError(
                f"training.adversarial: {name} gives a {type(judged).__name__}: one tensor is needed"
            )
        return judged

    def _judged_as(self, judged: Tensor, real: bool, *, of_discriminator: bool) -> Tensor:
        return adversarial_loss(self.section.type, judged, real, of_discriminator=of_discriminator)

    def _mean_of(self, judged: Tensor) -> Tensor:
        return judged.mean()

    def _shown(self, output: Tensor) -> Tensor:
        """What the discriminator learns of as false."""
        return output.detach()

    def _generator(self) -> list[Any]:
        """Its update; what its names hold until the step is over."""
        assert self.gt is not None
        self.net_d.requires_grad_(False)
        self.of_g.zero_grad()
        self.output = first_tensor(self.net_g(self.lq))
        total, parts = self.loss(self.output, self.gt)
        kept: list[Any] = [parts]
        if self.section.relativistic:
            real = self._judge(self.gt).detach()
            fake = self._judge(self.output)
            first = self._judged_as(real - self._mean_of(fake), False, of_discriminator=False)
            second = self._judged_as(fake - self._mean_of(real), True, of_discriminator=False)
            adversarial = self.section.weight * (first + second) / 2
            kept += [real, first, second]
        else:
            fake = self._judge(self.output)
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
            judged = self._judge(self.output).detach()
            mean_of_fake = self._mean_of(judged)
        real = self._judge(self.gt)
        compared = real - mean_of_fake if self.section.relativistic else real
        of_real = self._judged_as(compared, True, of_discriminator=True) * half
        of_real.backward()
        fake = self._judge(self._shown(self.output))
        compared = fake - self._mean_of(real.detach()) if self.section.relativistic else fake
        of_fake = self._judged_as(compared, False, of_discriminator=True) * half
        of_fake.backward()
        self.of_d.step()


class KairStep(AdversarialStep):
    """KAIR's ModelGAN: BasicSR's order, but for means over the batch alone and a copy of what is shown as false."""

    def _mean_of(self, judged: Tensor) -> Tensor:
        return judged.mean(0, keepdim=True)

    def _shown(self, output: Tensor) -> Tensor:
        return output.detach() if self.section.relativistic else output.detach().clone()
