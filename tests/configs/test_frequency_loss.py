"""What a SwinMR file's loss on k-space is here: the factor by hand, and the line that says so."""

import json

import pytest
import torch

from swinmr_profiling.configs import load_config
from swinmr_profiling.configs.frequency_loss import times_weaker
from swinmr_profiling.training.step.losses import FrequencyLoss, charbonnier

EPS = 1e-9


def published(output, target, loss):
    """SwinMR's: all axes of the tensor, no normalisation, the image's loss on both parts (its code, in our words)."""
    x, y = torch.fft.fftn(output), torch.fft.fftn(target)
    return (loss(x.real, y.real) + loss(x.imag, y.imag)) / 2


def ratio(errors, kind="charbonnier"):
    """The published loss over ours, of images that differ by these errors."""
    loss = charbonnier if kind == "charbonnier" else torch.nn.functional.mse_loss
    zeros = torch.zeros_like(errors)
    return float(published(errors, zeros, loss) / FrequencyLoss(kind, EPS)(errors, zeros))


def white(samples):
    return torch.randn(samples, 1, 96, 96, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("samples", "factor"), [(8, 271.529), (4, 192.0), (1, 96.0)])
def test_independent_errors_grow_with_the_root_of_their_number(samples, factor):
    """Each coefficient is a sum of N H W independent numbers: sqrt(8 x 9216) = 271.5, sqrt(4 x 9216) = 192."""
    assert times_weaker("charbonnier", (samples, 1, 96, 96)) == pytest.approx(factor, abs=5e-4)
    assert ratio(white(samples)) == pytest.approx(factor, rel=0.003)


@pytest.mark.parametrize(("measured", "samples"), [(271.8, 8), (191.8, 4), (96.0, 1)])
def test_figures_of_a_batch_of_images(measured, samples):
    """Taken with the published code on one batch of MR images."""
    assert times_weaker("l1", (samples, 1, 96, 96)) == pytest.approx(measured, rel=0.002)


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
    assert times_weaker("mse", (samples, 1, 96, 96)) == samples * 96 * 96


def swinmr_file(train, **changes):
    return {
        "netG": {"net_type": "swinmr", "img_size": 256},
        "datasets": {"train": {"H_size": 96, "dataloader_batch_size": 8, **changes.pop("data", {})}},
        "train": train,
        **changes,
    }


def notes(tmp_path, raw):
    file = tmp_path / "file.json"
    file.write_text(json.dumps(raw))
    return [line for line in load_config(file).messages if " stronger" in line]


BETA = {"G_lossfn_type": "charbonnier", "alpha": 15, "beta": 0.1, "gamma": 0.0025}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (swinmr_file(BETA), "about 272 times stronger (sqrt(N x C x H x W) of 8 x 1 x 96 x 96)"),
        (swinmr_file(BETA, data={"dataloader_batch_size": 4}), "about 192 times stronger"),
        # One process gathers the outputs of all devices before the loss; processes of their own do not.
        (swinmr_file(BETA, gpu_ids=[0, 1]), "about 272 times stronger"),
        (swinmr_file(BETA, gpu_ids=[0, 1], dist=True), "about 192 times stronger"),
        (swinmr_file({**BETA, "G_lossfn_type": "l2"}), "about 73,728 times stronger (N x C x H x W of 8"),
        (swinmr_file(BETA, data={"dataloader_batch_size": None}), "about sqrt(N x C x H x W) times stronger"),
    ],
)
def test_a_swinmr_file_with_a_frequency_loss_is_told(tmp_path, raw, said):
    [line] = notes(tmp_path, raw)
    assert line.startswith("train.beta weighs another loss here")
    assert said in line


@pytest.mark.parametrize(
    "raw",
    [
        swinmr_file({**BETA, "beta": 0}),
        swinmr_file({"G_lossfn_type": "l1"}),
        swinmr_file({}),
        {"model": {"net_type": "swinir"}},
        {
            "model": {"net_type": "swinir"},
            "training": {"loss": {"components": {"frequency": {"type": "mse"}}}},
        },
    ],
)
def test_where_there_is_none_or_it_is_our_own_nothing_is_said(tmp_path, raw):
    assert notes(tmp_path, raw) == []


def mriwizard(**sections):
    loss = {"type": "multi_component", "components": {"frequency": {"type": "fft_mse", "weight": 0.1}}}
    data = {"batch_size": 1, "patch_size": 96}
    return {"model": {"net_type": "swinir"}, "data": data, "training": {"loss": loss}, **sections}


def test_fft_mse_is_told_too(tmp_path):
    """The training it comes from reads spatial's weight and eps and frequency's weight, and no type of either."""
    [line] = notes(tmp_path, mriwizard())
    assert line.startswith(
        "training.loss.components.frequency.type fft_mse is read as mse of an orthonormal transform"
    )
    assert "about 96 times stronger (sqrt(N x C x H x W) of 1 x 1 x 96 x 96)" in line
    [line] = notes(tmp_path, mriwizard(data={"batch_size": "auto", "patch_size": 96}))
    assert "about sqrt(N x C x H x W) times stronger" in line
    weightless = {"components": {"frequency": {"type": "fft_mse", "weight": 0}}}
    assert notes(tmp_path, mriwizard(training={"loss": weightless})) == []


def test_a_command_prints_it(tmp_path, capsys, monkeypatch):
    import validate_setup
    from swinmr_profiling.training.setup.setup_suite import CHECKS

    monkeypatch.chdir(tmp_path)
    (tmp_path / "swinmr.json").write_text(json.dumps(swinmr_file(BETA)))
    run = ("python", "packages", "config")
    skip = [option for check in CHECKS if check.name not in run for option in ("--skip", check.name)]
    validate_setup.main(["--config", "swinmr.json", "--device", "cpu", *skip])
    assert "about 272 times stronger" in capsys.readouterr().out
