"""The step of option files with a discriminator against real CPU runs, written anew in each framework's order."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from swinmr_profiling.configs import ConfigError, config_from_dict, load_config
from swinmr_profiling.models.discriminators import UNetDiscriminatorSN, VGGStyleDiscriminator
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.training.own_step import other_step
from swinmr_profiling.profiler.prediction.own_step_trace import trace_configured
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.training.step import adversarial_orders, adversarial_step
from swinmr_profiling.training.step.adversarial_step import adversarial_loss
from swinmr_profiling.training.step.own_step import OwnStepError
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
                "gradient": {"clip_norm": 1.0},
                "adversarial": {"weight": 0.1, "width": 8, "optimizer": "sgd", **adversarial},
            },
        }
    )


def judge(section=None, *, trust_config=False):
    """Products alone: convolutions on a CPU have buffers of their own, which are in its allocator's events."""
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))


class RealRun:
    """The order of events of SRGANModel and ESRGANModel, straight."""

    in_kair = False

    def __init__(self, relativistic):
        self.relativistic = relativistic
        self.g, self.ema = (nn.Linear(32, 32) for _ in range(2))
        self.d = judge()
        options = {"lr": 1e-4, "momentum": 0.9}
        self.of_g = torch.optim.SGD(self.g.parameters(), **options, foreach=False)
        self.of_d = torch.optim.SGD(self.d.parameters(), **options, foreach=False)

    def batch(self):
        return torch.rand(SIZE, 3, 32, 32), torch.zeros(SIZE, 3, 32, 32)

    def says(self, judged, real):
        return F.binary_cross_entropy_with_logits(judged, judged.new_ones(judged.size()) * float(real))

    def mean(self, judged):
        return judged.mean(0, keepdim=True) if self.in_kair else judged.mean()

    def average(self):
        for average, now in zip(self.ema.parameters(), self.g.parameters(), strict=True):
            average.data.mul_(0.99).add_(now.data, alpha=0.01)

    def step(self):
        self.lq, self.gt = self.batch()
        for p in self.d.parameters():
            p.requires_grad = False
        self.of_g.zero_grad()
        self.output = self.g(self.lq)
        loss = F.l1_loss(self.output, self.gt)
        if self.relativistic:
            real = self.d(self.gt).detach()
            fake = self.d(self.output)
            loss = (
                loss
                + 0.1
                * (self.says(real - self.mean(fake), False) + self.says(fake - self.mean(real), True))
                / 2
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
            (self.says(real - self.mean(judged), True) * 0.5).backward()
            judged = self.d(self.output.detach())
            (self.says(judged - self.mean(real.detach()), False) * 0.5).backward()
        else:
            real = self.d(self.gt)
            self.says(real, True).backward()
            shown = self.output.detach()
            judged = self.d(shown.clone() if self.in_kair else shown)
            self.says(judged, False).backward()
        self.of_d.step()
        self.average()


class RealKair(RealRun):
    """ModelGAN."""

    in_kair = True


class RealTrainner(RealRun):
    """SRModel of traiNNer-redux: what is found of a network goes with its update."""

    clips = True

    def update(self, network, optimizer):
        torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(p.grad, 2) for p in network.parameters()])
        )
        if self.clips:
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def generator_loss(self):
        for p in self.d.parameters():
            p.requires_grad = False
        self.output = self.g(self.lq)
        loss = F.l1_loss(self.output, self.gt)
        self.judged = self.d(self.output)
        return loss + 0.1 * self.says(self.judged, True)

    def step(self):
        self.lq, self.gt = self.batch()
        loss = self.generator_loss()
        loss.backward()
        self.update(self.g, self.of_g)
        for p in self.d.parameters():
            p.requires_grad = True
        real = self.d(self.gt)
        of_real = self.says(real, True)
        fake = self.d(self.output.detach())
        of_fake = self.says(fake, False)
        (of_real + of_fake).backward()
        self.update(self.d, self.of_d)
        self.average()
        del self.judged


class RealNeosr(RealTrainner):
    """`image` of neosr: both updates at the end."""

    def step(self):
        self.lq, self.gt = self.batch()
        loss = self.generator_loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.g.parameters(), 1.0)
        for p in self.d.parameters():
            p.requires_grad = True
        real = self.d(self.gt)
        of_real = self.says(real, True)
        fake = self.d(self.output.detach())
        of_fake = self.says(fake, False)
        of_real.backward()
        of_fake.backward()
        nn.utils.clip_grad_norm_(self.d.parameters(), 1.0)
        del self.judged, loss, real, of_real, fake, of_fake
        self.of_g.step()
        self.of_d.step()
        self.of_g.zero_grad()
        self.of_d.zero_grad()
        self.average()


CASES = {
    "basicsr": (RealRun, {}),
    "basicsr, relativistic": (RealRun, {"relativistic": True}),
    "kair": (RealKair, {"order": "kair"}),
    "kair, relativistic": (RealKair, {"order": "kair", "relativistic": True}),
    "trainner": (RealTrainner, {"order": "trainner"}),
    "neosr": (RealNeosr, {"order": "neosr"}),
}


def predicted_peak(monkeypatch, given):
    monkeypatch.setattr(adversarial_orders, "build_discriminator", judge)
    chosen = config(**given)
    built = build_model(chosen, trust_config=True)
    step = other_step(chosen, built, trust_config=True)
    return int(trace_configured(step, built, chosen, SIZE, as_on_cuda=False).live_bytes().max())


@pytest.mark.parametrize("case", CASES)
def test_live_bytes_are_those_of_a_real_run(case, monkeypatch):
    kind, given = CASES[case]
    predicted = predicted_peak(monkeypatch, given)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        real = kind(given.get("relativistic", False))
        for _ in range(2):
            gc.collect()
            real.step()
    held = most = 0
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    assert predicted == pytest.approx(most, rel=0.002)


@pytest.mark.parametrize("case", CASES)
def test_two_steps_leave_the_weights_of_a_real_run(case, monkeypatch):
    monkeypatch.setattr(adversarial_orders, "build_discriminator", judge)
    kind, given = CASES[case]
    chosen = config(**given)
    step = other_step(chosen, build_model(chosen, trust_config=True), trust_config=True).made()
    real = kind(given.get("relativistic", False))
    with torch.no_grad():
        for p in real.d.parameters():
            p *= 8  # so that what the discriminator says weighs as much as the image
    step.net_g, step.net_d, real.ema = map(copy.deepcopy, (real.g, real.d, real.g))
    step.setup(torch.device("cpu"))
    for optimizer in (step.of_g, step.of_d):
        optimizer.param_groups[0] |= {"lr": 1e-4, "weight_decay": 0.0}
    batches = [(torch.rand(SIZE, 3, 32, 32), torch.rand(SIZE, 3, 32, 32)) for _ in range(2)]
    for batch in batches:
        real.batch = lambda batch=batch: batch
        real.step()
        step.step(batch)
    pairs = ((step.net_g, real.g), (step.net_d, real.d), (step.net_g_ema, real.ema))
    for ours, theirs in pairs:
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_each_network_is_told_what_is_wanted_of_it(case, monkeypatch):
    """The generator: that its images are true. The discriminator: what is true, and what is not."""
    monkeypatch.setattr(adversarial_orders, "build_discriminator", judge)
    told, (_, given) = [], CASES[case]

    def recorded(kind, judged, real, *, of_discriminator):
        told.append((kind, real, of_discriminator))
        return adversarial_loss(kind, judged, real, of_discriminator=of_discriminator)

    monkeypatch.setattr(adversarial_step, "adversarial_loss", recorded)
    chosen = config(**given, type="lsgan")
    step = other_step(chosen, build_model(chosen, trust_config=True), trust_config=True).made()
    step.setup(torch.device("cpu"))
    step.step((torch.rand(SIZE, 3, 32, 32), torch.rand(SIZE, 3, 32, 32)))
    of_generator = [(False, False), (True, False)] if "relativistic" in given else [(True, False)]
    assert told == [("lsgan", *one) for one in (*of_generator, (True, True), (False, True))]


@pytest.mark.parametrize("order", ["trainner", "neosr"])
def test_each_network_has_its_scaler_in_fp16(order, monkeypatch):
    monkeypatch.setattr(adversarial_orders, "build_discriminator", judge)
    chosen = config_from_dict(
        config(order=order).model_dump(mode="json") | {"system": {"mixed_precision": "fp16"}}
    )
    built = build_model(chosen, trust_config=True)
    trace = trace_configured(other_step(chosen, built, trust_config=True), built, chosen, SIZE)
    assert trace.autocast == ["float16"]
    assert "no gradient overflows its scale" in trace.assumptions


@pytest.mark.parametrize(("device", "kind"), [("cpu", "cpu"), ("meta", "cuda")])
def test_a_scaler_is_the_devices_own_and_cudas_in_a_prediction(device, kind, monkeypatch):
    monkeypatch.setattr(adversarial_orders, "build_discriminator", judge)
    chosen = config_from_dict(
        config(order="neosr").model_dump(mode="json") | {"system": {"mixed_precision": "fp16"}}
    )
    step = other_step(chosen, build_model(chosen, trust_config=True), trust_config=True).made()
    asked = []
    monkeypatch.setattr(torch.amp, "GradScaler", lambda of, enabled: asked.append((of, enabled)))
    step.setup(torch.device(device))
    assert asked == [(kind, True)] * 2


class Watched(nn.Module):
    """Says when it runs."""

    def __init__(self, name, network, told):
        super().__init__()
        self.name, self.network, self.told = name, network, told

    def forward(self, x):
        self.told.append(f"{self.name} forward")
        made = self.network(x)
        if made.requires_grad:
            made.register_hook(lambda gradient: self.told.append(f"{self.name} backward"))
        return made


G, D = ["g forward"], ["d forward"]
OF_G = [*G, *D, "d backward", "g backward"]
ONE_AND_ONE = [*D, "d backward", *D, "d backward"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # feed, forget the generator's gradients, its loss and update; then the same of the discriminator.
        ("basicsr", ["g zero", *OF_G, "g step", "d zero", *ONE_AND_ONE, "d step"]),
        ("kair", ["g zero", *OF_G, "g step", "d zero", *ONE_AND_ONE, "d step"]),
        # (l_d_real + l_d_fake).backward() goes through both graphs, the later one first.
        ("trainner", [*OF_G, "g step", "g zero", *D, *D, "d backward", "d backward", "d step", "d zero"]),
        ("neosr", [*OF_G, *D, *D, "d backward", "d backward", "g step", "d step", "g zero", "d zero"]),
    ],
)
def test_each_framework_has_its_own_order(order, expected, monkeypatch):
    told = []
    monkeypatch.setattr(
        adversarial_orders, "build_discriminator", lambda section, trust_config: Watched("d", judge(), told)
    )
    chosen = config(order=order)
    built = build_model(chosen, trust_config=True)
    step = other_step(chosen, built, trust_config=True).made()
    step.net_g = Watched("g", step.net_g, told)
    step.setup(torch.device("cpu"))
    for name, optimizer in (("g", step.of_g), ("d", step.of_d)):
        optimizer.register_step_post_hook(lambda *_, name=name: told.append(f"{name} step"))
        zero = optimizer.zero_grad
        optimizer.zero_grad = lambda zero=zero, name=name: (told.append(f"{name} zero"), zero())
    step.step((torch.rand(2, 3, 32, 32), torch.zeros(2, 3, 32, 32)))
    assert told == expected
    if order in ("trainner", "neosr"):
        assert all(p.grad is None for p in (*step.net_g.parameters(), *step.net_d.parameters()))


def test_a_discriminator_of_the_users_own_needs_consent_and_gives_one_tensor(tmp_path):
    (tmp_path / "judges.py").write_text(
        "import torch\n"
        "class Listing(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return [super().forward(x)]\n"
    )
    given = {"discriminator": "custom", "target": "judges.py:Listing", "target_folder": str(tmp_path)}
    chosen = config(**given, kwargs={"in_features": 32, "out_features": 1})
    built = build_model(chosen, trust_config=True)
    with pytest.raises(ModelError, match=r"training.adversarial.target: .*judges.py:Listing.*--trust-config"):
        other_step(chosen, built, trust_config=False)
    step = other_step(chosen, built, trust_config=True)
    # 32 weights and a bias.
    assert sum(p.numel() for p in step.discriminator.parameters()) == 33
    with pytest.raises(OwnStepError, match="Listing gives a list: one tensor is needed"):
        trace_configured(step, built, chosen, SIZE)
    with pytest.raises(ConfigError, match="target: is needed for discriminator"):
        config(discriminator="custom")
    with pytest.raises(ConfigError, match="is not what neosr trains with"):
        config(order="neosr", relativistic=True)


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
        ("huber", False, True, (0 + (2 - 0.5)) / 2),
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
    assert memory_fingerprint(config()) != memory_fingerprint(config(order="neosr"))
    custom = {"discriminator": "custom", "target": "a.py:A"}
    of_custom = memory_fingerprint(config(**custom))
    assert of_custom == memory_fingerprint(config(**custom, target_folder="elsewhere"))
    assert of_custom != memory_fingerprint(config(**custom, kwargs={"width": 2}))
