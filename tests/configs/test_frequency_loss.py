"""The loss on k-space that a SwinMR file means: its numbers by hand, who selects it, and the line that says so."""

import json
from math import prod, sqrt

import numpy as np
import pytest
import torch

from swinmr_profiling.configs import config_from_dict, load_config
from swinmr_profiling.configs.frequency_loss import times_stronger
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint, memory_settings
from swinmr_profiling.training.step.losses import FrequencyLoss, build_loss, charbonnier

EPS = 1e-9


def published(output, target, loss):
    """SwinMR's: all axes of the tensor, no normalisation, the image's loss on both parts (its code, in our words)."""
    x, y = torch.fft.fftn(output), torch.fft.fftn(target)
    return (loss(x.real, y.real) + loss(x.imag, y.imag)) / 2


def by_definition(errors, eps=EPS):
    """The same in float64 without any FFT: a product with a matrix of exponentials for every axis."""
    x = errors.numpy().astype(np.complex128)
    for axis, size in enumerate(x.shape):
        matrix = np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    return (np.sqrt(x.real**2 + eps).mean() + np.sqrt(x.imag**2 + eps).mean()) / 2


def swinmr_loss(errors, eps=EPS):
    return float(FrequencyLoss("charbonnier", eps, "swinmr")(errors, torch.zeros_like(errors)))


@pytest.mark.parametrize("shape", [(3, 1, 5, 4), (1, 1, 8, 8), (2, 3, 4, 6)])
def test_it_is_the_transform_of_all_axes_by_its_definition(shape):
    errors = 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    assert swinmr_loss(errors, 1e-4) == pytest.approx(by_definition(errors, 1e-4), rel=1e-6)


def test_it_equals_the_published_code():
    generator = torch.Generator().manual_seed(2)
    output, target = (torch.rand(8, 1, 96, 96, generator=generator) for _ in range(2))
    ours = FrequencyLoss("charbonnier", EPS, "swinmr")(output, target)
    assert float(ours) == pytest.approx(float(published(output, target, charbonnier)), rel=1e-6)


def test_one_wrong_pixel_by_hand():
    """Its transform is d everywhere where the pixel is the first: the real part is wrong by d, the imaginary by 0."""
    errors = torch.zeros(2, 1, 4, 4)
    errors[0, 0, 0, 0] = 0.3
    assert swinmr_loss(errors) == pytest.approx((0.3 + sqrt(EPS)) / 2, rel=1e-6)


def test_the_same_error_everywhere_by_hand():
    """Its transform is M d at the zero frequency of the first plane, 0 at the M - 1 others."""
    errors = torch.full((2, 1, 4, 4), 0.25)
    real = (32 * 0.25 + 31 * sqrt(EPS)) / 32
    assert swinmr_loss(errors) == pytest.approx((real + sqrt(EPS)) / 2, rel=1e-6)


def test_the_share_of_the_term_in_the_published_loss():
    """56 % with SwinMR's transform, 0.5 % with the orthonormal one, for independent errors.

    Of errors that are normal with deviation s the image's part is 15 s sqrt(2 / pi). A coefficient has s sqrt(M) in
    all, s sqrt(M / 2) in each part, so that k-space's is 0.1 s sqrt(M / 2) sqrt(2 / pi): 0.1 sqrt(36864) / 15 = 1.28.
    """
    errors = 0.02 * torch.randn(8, 1, 96, 96, generator=torch.Generator().manual_seed(0))
    shares = {}
    for transform in ("swinmr", "orthonormal"):
        loss = build_loss(config_from_dict(own(transform)))
        parts = loss(errors, torch.zeros_like(errors)).parts
        shares[transform] = float(parts["frequency"] / (parts["frequency"] + parts["spatial"]))
    assert shares["swinmr"] == pytest.approx(1.28 / 2.28, abs=0.003)
    assert shares["orthonormal"] == pytest.approx(0.0047, abs=2e-4)


def ratio(errors, kind="charbonnier"):
    """The published loss over the orthonormal one, of images that differ by these errors."""
    zeros = torch.zeros_like(errors)
    return float(FrequencyLoss(kind, EPS, "swinmr")(errors, zeros) / FrequencyLoss(kind, EPS)(errors, zeros))


def white(samples):
    return torch.randn(samples, 1, 96, 96, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("samples", "factor"), [(8, 271.529), (4, 192.0), (1, 96.0)])
def test_independent_errors_grow_with_the_root_of_their_number(samples, factor):
    """Each coefficient is a sum of N H W independent numbers: sqrt(8 x 9216) = 271.5, sqrt(4 x 9216) = 192."""
    assert times_stronger("charbonnier", (samples, 1, 96, 96)) == pytest.approx(factor, abs=5e-4)
    assert ratio(white(samples)) == pytest.approx(factor, rel=0.003)


@pytest.mark.parametrize(("measured", "samples"), [(271.8, 8), (191.8, 4), (96.0, 1)])
def test_figures_of_a_batch_of_images(measured, samples):
    """Taken with the published code on one batch of MR images."""
    assert times_stronger("l1", (samples, 1, 96, 96)) == pytest.approx(measured, rel=0.002)


def test_what_the_batch_axis_adds_depends_on_the_errors():
    """Where all samples err alike the batch's transform has one plane of N times them and zeros: 96, N left out.

    Where one errs and the others do not, every plane is that one's: N x 96.
    """
    alike = white(1).expand(8, -1, -1, -1)
    assert ratio(alike) == pytest.approx(96, rel=0.01)  # eps, in the planes of zeros
    alone = torch.zeros(8, 1, 96, 96)
    alone[3] = white(1)
    assert ratio(alone) == pytest.approx(8 * 96, rel=0.01)


@pytest.mark.parametrize("samples", [8, 1])
def test_squared_errors_grow_with_their_number_whatever_they_are(samples):
    """Parseval: the sum of squares is N H W times as large."""
    alike = white(1).expand(samples, -1, -1, -1)
    for errors in (white(samples), alike):
        assert ratio(errors, "mse") == pytest.approx(samples * 96 * 96, rel=1e-4)
    assert times_stronger("mse", (samples, 1, 96, 96)) == prod((samples, 96, 96))


def own(transform=None, **frequency):
    frequency |= {} if transform is None else {"transform": transform}
    loss = {"components": {"frequency": frequency, "perceptual": {"weight": 0}}}
    return {
        "model": {"net_type": "swinir"},
        "data": {"batch_size": 1, "patch_size": 96},
        "training": {"loss": loss},
    }


def test_the_choice_enters_the_fingerprint_and_the_default_changes_none():
    default, orthonormal, swinmr = (
        config_from_dict(own(transform)) for transform in (None, "orthonormal", "swinmr")
    )
    assert default.training.loss.components.frequency.transform == "orthonormal"
    assert memory_fingerprint(default) == memory_fingerprint(orthonormal) != memory_fingerprint(swinmr)
    # Profiles from before the key had this loss.
    assert set(memory_settings(default)["loss"]["components"]["frequency"]) == {"type", "is_on"}
    assert build_loss(default).label != build_loss(swinmr).label
    off = [memory_fingerprint(config_from_dict(own(transform, weight=0))) for transform in ("swinmr", None)]
    assert off[0] == off[1]


def swinmr_file(train, **changes):
    return {
        "netG": {"net_type": "swinmr", "img_size": 256},
        "datasets": {"train": {"H_size": 96, "dataloader_batch_size": 8, **changes.pop("data", {})}},
        "train": train,
        **changes,
    }


def loaded(tmp_path, raw):
    file = tmp_path / "file.json"
    file.write_text(json.dumps(raw))
    return load_config(file)


def notes(tmp_path, raw):
    return [line for line in loaded(tmp_path, raw).messages if line.startswith("loss on k-space")]


BETA = {"G_lossfn_type": "charbonnier", "alpha": 15, "beta": 0.1, "gamma": 0.0025}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (swinmr_file(BETA), "about 272 (sqrt(N x C x H x W) of 8 x 1 x 96 x 96) times an orthonormal one"),
        (swinmr_file(BETA, data={"dataloader_batch_size": 4}), "about 192 (sqrt"),
        # One process gathers the outputs of all devices before the loss; processes of their own do not.
        (swinmr_file(BETA, gpu_ids=[0, 1]), "the 8 samples of all gpu_ids at once, here each device its 4"),
        (swinmr_file(BETA, gpu_ids=[0, 1], dist=True), "about 192 (sqrt"),
        (swinmr_file({**BETA, "G_lossfn_type": "l2"}), "about 73,728 (N x C x H x W of 8"),
    ],
)  # fmt: skip
def test_a_swinmr_file_means_swinmrs_loss(tmp_path, raw, said):
    config = loaded(tmp_path, raw).config
    assert config.training.loss.components.frequency.transform == "swinmr"
    [line] = notes(tmp_path, raw)
    assert said in line
    assert ("all gpu_ids" in line) == ("all gpu_ids" in said)


@pytest.mark.parametrize(
    "raw",
    [
        swinmr_file({**BETA, "beta": 0}),
        swinmr_file({"G_lossfn_type": "l1"}),
        swinmr_file({}),
        {"model": {"net_type": "swinir"}},
        own("orthonormal", type="mse"),
    ],
)
def test_where_there_is_none_or_it_is_our_own_nothing_is_said(tmp_path, raw):
    assert notes(tmp_path, raw) == []


def test_an_own_config_may_choose_it_and_is_told_too(tmp_path):
    [line] = notes(tmp_path, own("swinmr"))
    assert "about 96 (sqrt(N x C x H x W) of 1 x 1 x 96 x 96)" in line
    [line] = notes(tmp_path, {**own("swinmr"), "data": {"batch_size": "auto", "patch_size": 96}})
    assert "about sqrt(N x C x H x W) times" in line


@pytest.mark.parametrize(("spatial", "eps"), [({"eps": 1e-4}, 1e-4), ({}, 1e-3)])
def test_fft_mse_is_what_its_source_computes(tmp_path, spatial, eps):
    """swinmr-mriwizard's training reads the weights and spatial's eps (1e-3 without): Charbonnier of all axes."""
    parts = {"spatial": {"type": "charbonnier", "weight": 1.0, **spatial}}
    parts |= {"frequency": {"type": "fft_mse", "weight": 0.1}, "perceptual": {"weight": 0}}
    raw = {**own(), "training": {"loss": {"type": "multi_component", "components": parts}}}
    read = loaded(tmp_path, raw)
    generator = torch.Generator().manual_seed(3)
    output, target = (torch.rand(2, 1, 16, 16, generator=generator) for _ in range(2))
    part = build_loss(read.config)(output, target).parts["frequency"]
    expected = 0.1 * published(output, target, lambda x, y: torch.sqrt((x - y) ** 2 + eps).mean())
    assert float(part) == pytest.approx(float(expected), rel=1e-6)
    assert any(
        "fft_mse is read as what swinmr-mriwizard's training computes" in line for line in read.messages
    )


def test_milestones_of_an_option_file_change_the_rate_where_they_do_there(tmp_path):
    """KAIR's loop calls `scheduler.step(n)` and then takes step n: with [3, 5] steps 1, 2 | 3, 4 | 5, 6."""
    from swinmr_profiling.training.step.optimizers import build_scheduler

    raw = swinmr_file({"G_optimizer_lr": 1.0, "G_scheduler_milestones": [3, 5], "G_scheduler_gamma": 0.5})
    config = loaded(tmp_path, raw).config
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0) for _ in range(2)]
    theirs = torch.optim.lr_scheduler.MultiStepLR(optimizers[0], [3, 5], 0.5)
    ours = build_scheduler(optimizers[1], config.training.scheduler, 6)
    rates = []
    for n in range(1, 7):
        optimizers[0].step()
        theirs.step(n)
        rates.append([optimizer.param_groups[0]["lr"] for optimizer in optimizers])
        optimizers[1].step()
        ours.step()
    assert [rate for rate, _ in rates] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert [rate for _, rate in rates] == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_a_command_prints_it(tmp_path, capsys, monkeypatch):
    import validate_setup
    from swinmr_profiling.training.setup.setup_suite import CHECKS

    monkeypatch.chdir(tmp_path)
    (tmp_path / "swinmr.json").write_text(json.dumps(swinmr_file(BETA)))
    run = ("python", "packages", "config")
    skip = [option for check in CHECKS if check.name not in run for option in ("--skip", check.name)]
    validate_setup.main(["--config", "swinmr.json", "--device", "cpu", *skip])
    assert "about 272 (sqrt" in capsys.readouterr().out
