"""The step of option files with a discriminator against a real run on the CPU, written anew in BasicSR's order."""

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.models.discriminators import UNetDiscriminatorSN, VGGStyleDiscriminator
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.own_step.other_step import other_step
from swinmr_profiling.profiler.prediction.own_step.configured_trace import trace_configured
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.training.step import adversarial_step
from swinmr_profiling.training.step.adversarial_step import adversarial_loss
from tests.conftest import REPOSITORY

SIZE = 3


def config(**adversarial):
    return config_from_dict(
        {
            "model": {
                "net_type": "custom",
                "target": "torch.nn:Linear",
                "kwargs": {"in_features": 32, "out_features": 32},
                "input_shapes": [[3, 32, 32]],
            },
            "data": {"use_patches": False},
            "training": {
                "loss": {"type": "l1"},
                "optimizer": {"type": "sgd", "momentum": 0.9},
                "ema_decay": 0.99,
                "adversarial": {"weight": 0.1, "width": 8, "optimizer": "sgd", **adversarial},
            },
        }
    )


def judge(section=None):
    """Products alone: convolutions on a CPU have buffers of their own, which are in its allocator's events."""
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))


class RealRun:
    """The order of events of SRGANModel and ESRGANModel, straight."""

    def __init__(self, relativistic):
        self.relativistic = relativistic
        self.g, self.average = (nn.Linear(32, 32) for _ in range(2))
        self.d = judge()
        options = {"lr": 1e-4, "momentum": 0.9}
        self.of_g = torch.optim.SGD(self.g.parameters(), **options, foreach=False)
        self.of_d = torch.optim.SGD(self.d.parameters(), **options, foreach=False)

    def says(self, judged, real):
        return F.binary_cross_entropy_with_logits(judged, judged.new_ones(judged.size()) * float(real))

    def step(self):
        self.lq, self.gt = torch.rand(SIZE, 3, 32, 32), torch.zeros(SIZE, 3, 32, 32)
        for p in self.d.parameters():
            p.requires_grad = False
        self.of_g.zero_grad()
        self.output = self.g(self.lq)
        loss = F.l1_loss(self.output, self.gt)
        if self.relativistic:
            real = self.d(self.gt).detach()
            fake = self.d(self.output)
            loss = (
                loss + 0.1 * (self.says(real - fake.mean(), False) + self.says(fake - real.mean(), True)) / 2
            )
        else:
            fake = self.d(self.output)
            loss = loss + 0.1 * self.says(fake, True)
        loss.backward()
        self.of_g.step()
        for p in self.d.parameters():
            p.requires_grad = True
        self.of_d.zero_grad()
        if self.relativistic:
            judged = self.d(self.output).detach()
            real = self.d(self.gt)
            (self.says(real - judged.mean(), True) * 0.5).backward()
            judged = self.d(self.output.detach())
            (self.says(judged - real.detach().mean(), False) * 0.5).backward()
        else:
            real = self.d(self.gt)
            self.says(real, True).backward()
            judged = self.d(self.output.detach())
            self.says(judged, False).backward()
        self.of_d.step()
        for average, now in zip(self.average.parameters(), self.g.parameters(), strict=True):
            average.data.mul_(0.99).add_(now.data, alpha=0.01)


@pytest.mark.parametrize("relativistic", [False, True])
def test_live_bytes_are_those_of_a_real_run(relativistic, monkeypatch):
    monkeypatch.setattr(adversarial_step, "build_discriminator", judge)
    chosen = config(relativistic=relativistic)
    built = build_model(chosen, trust_config=True)
    trace = trace_configured(
        other_step(chosen, built, trust_config=True), built, chosen, SIZE, as_on_cuda=False
    )
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        real = RealRun(relativistic)
        for _ in range(2):
            gc.collect()
            real.step()
    held = most = 0
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    assert int(trace.live_bytes().max()) == pytest.approx(most, rel=0.002)


def test_the_discriminators_are_those_of_basicsr():
    # ESRGAN's network of biases in every convolution has 14,502,281; BasicSR's has none but in the first, which leaves
    # out those of 64 + 2 x 128 + 2 x 256 + 4 x 512 channels. 4,376,897 is printed by Real-ESRGAN.
    vgg, unet = VGGStyleDiscriminator(3, 64, 128), UNetDiscriminatorSN(3, 64, True)
    assert sum(p.numel() for p in vgg.parameters()) == 14_502_281 - 2_880
    assert sum(p.numel() for p in unet.parameters()) == 4_376_897
    assert unet(torch.zeros(1, 3, 32, 32)).shape == (1, 1, 32, 32)
    small = VGGStyleDiscriminator(3, 2, 256)
    assert small(torch.zeros(2, 3, 256, 256)).shape == (2, 1)
    with pytest.raises(ModelError, match="takes 256 pixels, and the images have 64"):
        small(torch.zeros(2, 3, 64, 64))
    with pytest.raises(ModelError, match="128 or 256, not 64"):
        VGGStyleDiscriminator(3, 2, 64)


def test_adversarial_losses_by_hand():
    judged = torch.tensor([0.0, 2.0])
    log2, log1e2 = 0.6931472, 2.1269280  # log(1 + e^0), log(1 + e^2)
    for kind, real, of_discriminator, expected in (
        ("vanilla", True, True, (log2 + log1e2 - 2) / 2),
        ("vanilla", False, True, (log2 + log1e2) / 2),
        ("lsgan", True, False, (1 + 1) / 2),
        ("lsgan", False, True, (0 + 4) / 2),
        ("wgan", True, True, -1.0),
        ("wgan", False, True, 1.0),
        ("wgan_softplus", True, True, (log2 + log1e2 - 2) / 2),
        ("hinge", True, True, 0.5),
        ("hinge", False, True, (1 + 3) / 2),
        ("hinge", True, False, -1.0),
    ):
        found = adversarial_loss(kind, judged, real, of_discriminator=of_discriminator)
        assert float(found) == pytest.approx(expected, rel=1e-6), kind


def test_option_files_say_what_is_trained():
    folder = REPOSITORY / "tests/configs/option_files"
    loaded = load_config(folder / "basicsr_msrgan_x4.yml")
    section = loaded.config.training.adversarial
    assert (section.weight, section.discriminator, section.width, section.relativistic) == (
        5e-3,
        "vgg",
        64,
        False,
    )
    assert loaded.config.training.other_step is not None
    # BasicSR's SRModel never calls a discriminator.
    loaded = load_config(folder / "basicsr_esrgan_x4.yml")
    assert loaded.config.training.adversarial.weight == 0
    assert "is not used by model_type SRModel" in "\n".join(loaded.messages)
    assert memory_fingerprint(config()) != memory_fingerprint(config(weight=0.0))
    assert memory_fingerprint(config()) == memory_fingerprint(config(weight=0.2))
    assert memory_fingerprint(config()) != memory_fingerprint(config(relativistic=True))
