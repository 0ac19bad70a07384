"""Losses by hand and against numpy, what is skipped and said so, and stand-ins."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torchvision.models import VGG19_Weights, vgg19

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.errors import LossError
from swinmr_profiling.training.step.losses import (
    CrossEntropyLoss,
    FrequencyLoss,
    SsimLoss,
    StandInLoss,
    build_loss,
    charbonnier,
    first_tensor,
    pixel_loss,
)
from swinmr_profiling.training.step.perceptual_loss import IMAGENET_MEAN, IMAGENET_STD, PerceptualLoss
from swinmr_profiling.training.step.ssim import ssim


def config(components=None, loss_type="multi_component", **model):
    loss = {"type": loss_type, "components": components or {}}
    return config_from_dict({"model": model or {"net_type": "swinir"}, "training": {"loss": loss}})


NO_PERCEPTUAL = {"perceptual": {"weight": 0}}


@pytest.fixture
def empty_hub(monkeypatch, tmp_path):
    """A torch hub cache with nothing in it."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    return tmp_path / "hub" / "checkpoints"


def images(seed=0, shape=(2, 1, 16, 12)):
    rng = np.random.default_rng(seed)
    return tuple(torch.from_numpy(rng.random(shape, dtype=np.float32)) for _ in range(2))


def test_pixel_losses_by_hand():
    x, y = torch.tensor([0.0, 3.0]), torch.tensor([0.0, -1.0])
    # sqrt(0 + 9) and sqrt(16 + 9): eps is added to the square as it is.
    assert charbonnier(x, y, eps=9.0).item() == pytest.approx((3 + 5) / 2)
    assert pixel_loss("charbonnier", 9.0)(x, y).item() == pytest.approx(4.0)
    assert pixel_loss("l1", 0.0)(x, y).item() == pytest.approx(2.0)
    assert pixel_loss("mse", 0.0)(x, y).item() == pytest.approx(8.0)


def test_the_frequency_loss_equals_numpy_over_the_last_two_axes():
    x, y = images()
    difference = np.stack([[np.fft.fft2(c, norm="ortho") for c in pair] for pair in (x - y).numpy()])
    # The order of frequencies does not matter to a mean: a shift in image space only turns phases...
    shifted = difference * np.exp(2j * np.pi * (np.add.outer(np.arange(16) * 8 / 16, np.arange(12) * 6 / 12)))
    real, imag = np.sqrt(shifted.real**2 + 1e-9).mean(), np.sqrt(shifted.imag**2 + 1e-9).mean()
    got = FrequencyLoss("charbonnier", 1e-9)(x, y).item()
    assert got == pytest.approx((real + imag) / 2, rel=1e-5)
    # Parseval: the mean square over both parts of k-space is half that of the image.
    assert FrequencyLoss("mse", 0.0)(x, y).item() == pytest.approx(F.mse_loss(x, y).item() / 2, rel=1e-5)


def test_the_published_loss_adds_up_from_its_parts(empty_hub):
    """15 Charbonnier + 0.1 k-space, the perceptual part named as skipped with the file to put in place."""
    loss = build_loss(config())
    x, y = images()
    total, parts = loss(x, y)
    assert list(parts) == ["spatial", "frequency"]
    assert parts["spatial"].item() == pytest.approx(15 * charbonnier(x, y).item(), rel=1e-6)
    assert parts["frequency"].item() == pytest.approx(0.1 * FrequencyLoss("charbonnier", 1e-9)(x, y).item())
    assert total.item() == pytest.approx(sum(part.item() for part in parts.values()), rel=1e-6)
    assert loss.label == "15 spatial + 0.1 frequency"
    (line,) = loss.skipped
    assert "vgg19-dcbb9e9d.pth" in line
    assert str(empty_hub) in line


def test_gradients_flow_through_every_part():
    loss = build_loss(config({**NO_PERCEPTUAL, "ssim": {"weight": 2.0}}))
    x, y = images()
    x.requires_grad_()
    total, parts = loss(x, y)
    total.backward()
    assert list(parts) == ["spatial", "frequency", "ssim"]
    assert torch.isfinite(x.grad).all()
    assert (x.grad != 0).all()
    assert not any(part.requires_grad for part in parts.values())


def test_equal_images_have_a_finite_gradient():
    """sqrt at 0 has none: that is what eps is for."""
    x, _ = images()
    x.requires_grad_()
    total, _ = build_loss(config(NO_PERCEPTUAL))(x, x.detach().clone())
    total.backward()
    assert torch.isfinite(x.grad).all()


def test_half_precision_is_computed_in_float32_also_under_autocast():
    """bf16 has no FFT, and a mean of bf16 differences would be off by a percent."""
    x, y = images()
    loss = build_loss(config(NO_PERCEPTUAL))
    expected = loss(x.bfloat16().float(), y).total.item()
    with torch.autocast("cpu", torch.bfloat16):
        total = loss(x.bfloat16(), y).total
    assert total.dtype == torch.float32
    assert total.item() == expected


def test_shapes_alone_go_through_the_whole_loss():
    """The profiler counts and predicts on the meta device, which has no autocast."""
    loss = build_loss(config({**NO_PERCEPTUAL, "ssim": {"weight": 1.0}}))
    x = torch.empty(2, 1, 16, 12, device="meta", requires_grad=True)
    total, parts = loss(x, torch.empty(2, 1, 16, 12, device="meta"))
    total.backward()
    assert x.grad.shape == x.shape
    assert list(parts) == ["spatial", "frequency", "ssim"]


def test_the_ssim_loss_takes_each_targets_own_range():
    x, y = images()
    y = y * torch.tensor([1.0, 10.0]).reshape(2, 1, 1, 1)
    each = [ssim(x[i : i + 1], y[i : i + 1], float(y[i].max())).item() for i in range(2)]
    assert SsimLoss()(x, y).item() == pytest.approx(1 - sum(each) / 2, rel=1e-5)
    assert torch.isfinite(SsimLoss()(x, torch.zeros_like(y)))


def test_the_types_and_weights_of_the_config_are_honoured():
    parts = {"spatial": {"type": "mse", "weight": 2}, "frequency": {"weight": 0}, **NO_PERCEPTUAL}
    x, y = images()
    loss = build_loss(config(parts))
    assert loss(x, y).total.item() == pytest.approx(2 * F.mse_loss(x, y).item(), rel=1e-6)
    assert build_loss(config(loss_type="l1"))(x, y).total.item() == pytest.approx(F.l1_loss(x, y).item())
    assert build_loss(config(loss_type="mse"))(x, y).total.item() == pytest.approx(F.mse_loss(x, y).item())


def test_other_networks_get_a_labelled_stand_in_unless_the_config_names_a_loss():
    timm = {"net_type": "timm", "name": "resnet18"}
    classifier = build_loss(config(loss_type="auto", **timm))
    assert classifier.label == "cross_entropy"  # as a classifier trains
    stand_in = build_loss(config(loss_type="auto", **timm, num_classes=0))
    assert isinstance(stand_in, StandInLoss)
    assert stand_in.label.startswith("stand-in")
    # 1, 2, 3: (1 + 4 + 9) / 3, from whatever holds the tensor.
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    for output in (logits, (logits, None), {"sample": logits}, [None, (logits,)]):
        assert stand_in(output).total.item() == pytest.approx(14 / 3)
    assert not isinstance(build_loss(config(loss_type="l1", **timm)), StandInLoss)
    assert not isinstance(build_loss(config(NO_PERCEPTUAL, loss_type="auto")), StandInLoss)
    with pytest.raises(LossError, match="returned a str without a tensor"):
        first_tensor("no tensor")


def test_cross_entropy_by_hand():
    loss = build_loss(config(loss_type="cross_entropy", net_type="timm", name="resnet18"))
    assert isinstance(loss, CrossEntropyLoss)
    # Equal logits over 4 classes: ln 4.
    assert loss(torch.zeros(3, 4), torch.tensor([0, 1, 3])).total.item() == pytest.approx(np.log(4), rel=1e-6)


def test_an_output_of_another_shape_is_refused_not_broadcast():
    x, y = images()
    with pytest.raises(LossError, match=re.escape("shape (2, 1, 16, 12), its target (2, 1, 16, 1)")):
        build_loss(config(NO_PERCEPTUAL))(x, y[..., :1])


@pytest.fixture(scope="module")
def vgg_file(tmp_path_factory):
    """A file like the published one, with random weights: the first layers are all these tests compare."""
    torch.manual_seed(0)
    model = vgg19(weights=None)
    state = {key: value for key, value in model.state_dict().items() if key.startswith("features.")}
    file = tmp_path_factory.mktemp("vgg") / "vgg19-dcbb9e9d.pth"
    torch.save(state, file)
    return file


@pytest.mark.slow
def test_the_perceptual_loss_equals_vgg19_run_by_hand(vgg_file):
    """Layers 2 (a convolution, before its ReLU) and 7, grey repeated, ImageNet's normalisation."""
    loss = PerceptualLoss(vgg_file, [2, 7], [0.1, 1.0])
    x, y = images(shape=(1, 1, 16, 16))
    features = vgg19(weights=None).features[:8].eval()
    features.load_state_dict(
        {k.removeprefix("features."): v for k, v in torch.load(vgg_file).items() if int(k.split(".")[1]) < 8}
    )

    def at(image, index):
        mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        with torch.no_grad():
            return features[: index + 1]((image.repeat(1, 3, 1, 1) - mean) / std)

    expected = 0.1 * F.l1_loss(at(x, 2), at(y, 2)) + F.l1_loss(at(x, 7), at(y, 7))
    assert (at(x, 2) < 0).any()  # not cut off by an in-place ReLU
    assert loss(x, y).item() == pytest.approx(expected.item(), rel=1e-5)


def test_images_are_normalized_as_torchvision_normalizes_them(vgg_file):
    loss, asked = PerceptualLoss(vgg_file, [2], [1.0]), VGG19_Weights.IMAGENET1K_V1.transforms()
    assert loss.mean.flatten().tolist() == pytest.approx(asked.mean)
    assert loss.std.flatten().tolist() == pytest.approx(asked.std)
    # They are no weights: a VGG19's own state, and nothing else, is what is kept of the loss.
    assert {key.split(".")[0] for key in loss.state_dict()} == {"features"}


def test_channels_that_are_no_colours_are_averaged(vgg_file):
    loss, (x, y) = PerceptualLoss(vgg_file, [2], [1.0]), images(shape=(2, 2, 16, 16))
    grey = [(image[:, :1] + image[:, 1:]) / 2 for image in (x, y)]
    assert loss(x, y).item() == pytest.approx(loss(*grey).item(), rel=1e-5)


def test_the_perceptual_loss_is_a_fixed_ruler(vgg_file):
    components = {"perceptual": {"weights_file": str(vgg_file)}}
    loss = build_loss(config(components))
    assert loss.skipped == ()
    assert "0.0025 perceptual" in loss.label
    assert not any(parameter.requires_grad for parameter in loss.parameters())
    assert not loss.train().modules_of_parts["perceptual"].features.training
    x, y = images(shape=(1, 1, 32, 32))
    x.requires_grad_()
    loss(x, y).total.backward()
    assert (x.grad != 0).any()


def test_weights_in_the_hub_cache_are_found(empty_hub, vgg_file):
    empty_hub.mkdir(parents=True)
    (empty_hub / "vgg19-dcbb9e9d.pth").symlink_to(vgg_file)
    assert build_loss(config()).skipped == ()


def test_named_weights_that_are_missing_or_something_else_are_an_error(tmp_path, empty_hub):
    missing = {"perceptual": {"weights_file": str(tmp_path / "vgg.pth")}}
    with pytest.raises(LossError, match=r"vgg\.pth: no such file; put vgg19-dcbb9e9d\.pth there"):
        build_loss(config(missing))
    torch.save({"weight": torch.zeros(1)}, tmp_path / "vgg.pth")
    with pytest.raises(LossError, match=r"vgg\.pth: is not vgg19-dcbb9e9d\.pth"):
        build_loss(config(missing))
    alone = {"spatial": {"weight": 0}, "frequency": {"weight": 0}}
    with pytest.raises(LossError, match=r"no loss is left: perceptual loss skipped"):
        build_loss(config(alone))
