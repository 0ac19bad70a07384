"""The step with a discriminator in the order of each framework, and how a config's is made anew for a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.discriminators import build_discriminator
from swinmr_profiling.training.step.adversarial_step import AdversarialStep, KairStep
from swinmr_profiling.training.step.losses import build_loss, first_tensor


class ScaledStep(AdversarialStep):
    """What traiNNer-redux and neosr share: a gradient scaler for each network, and clipping of both."""

    def setup(self, device: torch.device) -> None:
        super().setup(device)
        scaled = self.autocast_dtype is torch.float16
        # Of a prediction, whose tensors have no device of their own, it is CUDA's.
        kind = "cuda" if device.type == "meta" else device.type
        self.scaler_g, self.scaler_d = (torch.amp.GradScaler(kind, enabled=scaled) for _ in range(2))

    def _clip(self, network: nn.Module) -> None:
        norm = self.config.training.gradient.clip_norm
        if norm is not None:
            nn.utils.clip_grad_norm_(network.parameters(), norm)

    def _forward(self) -> tuple[Tensor, Tensor]:
        """The generator's whole loss, and the judgement, which lives as long; its output stays."""
        assert self.gt is not None
        self.output = first_tensor(self.net_g(self.lq))
        total, _ = self.loss(self.output, self.gt)
        judged = self._judge(self.output)
        return total + self.section.weight * self._judged_as(judged, True, of_discriminator=False), judged

    def _judgements(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The discriminator's loss on what is true and on what is false, both graphs alive; and what it said."""
        assert self.gt is not None
        real = self._judge(self.gt)
        of_real = self._judged_as(real, True, of_discriminator=True)
        fake = self._judge(self.output.detach())
        return of_real, self._judged_as(fake, False, of_discriminator=True), [real, fake]


class TrainnerStep(ScaledStep):
    """traiNNer-redux' SRModel: gradients go with their own network's step; one backward of the discriminator."""

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        self.lq, self.gt = batch
        self.net_d.requires_grad_(False)
        with self._autocast():
            total, judged = self._forward()
            self.scaler_g.scale(total).backward()
            self._update(self.scaler_g, self.of_g, self.net_g)
        self.net_d.requires_grad_(True)
        with self._autocast():
            of_real, of_fake, said = self._judgements()
        self.scaler_d.scale(of_real + of_fake).backward()
        self._update(self.scaler_d, self.of_d, self.net_d)
        self._average()
        del total, judged, of_real, of_fake, said

    def _update(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, network: nn.Module
    ) -> None:
        scaler.unscale_(optimizer)
        # Of its log, whether or not gradients are clipped.
        norms = [torch.linalg.vector_norm(p.grad) for p in network.parameters() if p.grad is not None]
        torch.linalg.vector_norm(torch.stack(norms))
        self._clip(network)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


class NeosrStep(ScaledStep):
    """neosr's `image`: gradients of both networks are there before either is updated."""

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        self.lq, self.gt = batch
        self._gradients()
        self.scaler_g.step(self.of_g)
        self.scaler_d.step(self.of_d)
        self.scaler_g.update()
        self.scaler_d.update()
        self.of_g.zero_grad()
        self.of_d.zero_grad()
        self._average()

    def _gradients(self) -> None:
        self.net_d.requires_grad_(False)
        with self._autocast():
            total, judged = self._forward()
        self.scaler_g.scale(total).backward()
        self._unscale_and_clip(self.scaler_g, self.of_g, self.net_g)
        self.net_d.requires_grad_(True)
        with self._autocast():
            of_real, of_fake, said = self._judgements()
            self.scaler_d.scale(of_real).backward()
            self.scaler_d.scale(of_fake).backward()
        self._unscale_and_clip(self.scaler_d, self.of_d, self.net_d)
        del total, judged, of_real, of_fake, said

    def _unscale_and_clip(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, network: nn.Module
    ) -> None:
        if self.config.training.gradient.clip_norm is not None:
            scaler.unscale_(optimizer)
            self._clip(network)


ORDERS = {"basicsr": AdversarialStep, "kair": KairStep, "trainner": TrainnerStep, "neosr": NeosrStep}


class ConfiguredAdversarialStep:
    """What `training.adversarial` describes, made anew for a run (as `ConfiguredStep`)."""

    def __init__(
        self,
        config: ExperimentConfig,
        generator: nn.Module,
        make_batch: Callable[[int], dict[str, Any]],
        make_whole: Callable[[int], dict[str, Any]],
        *,
        trust_config: bool,
        for_prediction: bool,
    ) -> None:
        """Raises ModelError for a discriminator that cannot be built, or may not without the user's consent."""
        self.config, self.generator = config, generator
        self.make_batch, self.make_whole = make_batch, make_whole
        self.loss = build_loss(config, for_prediction=for_prediction)
        self.discriminator = build_discriminator(config.training.adversarial, trust_config=trust_config)

    def made(self, copied: Callable[[Any], Any] = lambda parts: parts) -> AdversarialStep:
        """The step before its `setup`, over copies of the networks and the loss."""
        generator, discriminator, loss = copied((self.generator, self.discriminator, self.loss))
        kind = ORDERS[self.config.training.adversarial.order]
        return kind(self.config, generator, discriminator, loss, self.make_batch, self.make_whole)
