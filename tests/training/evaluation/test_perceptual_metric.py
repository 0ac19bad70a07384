"""LPIPS without a network: the order of what is at hand, and the values of each."""

import importlib
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from swinmr_profiling.training.evaluation import perceptual_metric
from swinmr_profiling.training.evaluation.perceptual_metric import (
    BACKBONE_NAME,
    PerceptualMetricError,
    ShiftTolerantLpips,
    choose_perceptual_metric,
    load_lpips,
    weights_file,
)

needs_stlpips = pytest.mark.skipif(weights_file() is None, reason="stlpips-pytorch is not installed")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty torch hub cache; no network is asked."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(
        torch.hub, "download_url_to_file", lambda *args, **kwargs: pytest.fail("something was fetched")
    )
    return tmp_path / "hub/checkpoints"


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """Random weights in the form of torchvision's file."""
    file = tmp_path_factory.mktemp("weights") / "alexnet.pth"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        features = torchvision.models.alexnet(weights=None).features
    torch.save({f"features.{key}": tensor for key, tensor in features.state_dict().items()}, file)
    return file


def images(seed=0, side=64):
    rng = np.random.default_rng(seed)
    return [rng.random((side, side), np.float32) for _ in range(2)]


def without_stlpips(monkeypatch):
    monkeypatch.setattr(perceptual_metric, "weights_file", lambda: None)


def test_nothing_at_hand_is_null_with_the_file_to_put_in_place(hub, monkeypatch):
    without_stlpips(monkeypatch)
    choice = choose_perceptual_metric(None)
    assert choice.metric is None
    assert BACKBONE_NAME in choice.reason
    assert str(hub) in choice.reason
    assert "\n" not in choice.reason


@pytest.mark.slow
def test_a_named_file_comes_before_the_cache_and_the_cache_before_st_lpips(hub, backbone):
    choice = choose_perceptual_metric(backbone)
    assert (choice.metric.name, choice.metric.weights) == ("lpips", backbone)
    hub.mkdir(parents=True)
    cached = hub / BACKBONE_NAME
    cached.write_bytes(backbone.read_bytes())
    choice = choose_perceptual_metric(None)
    assert (choice.metric.name, choice.metric.weights) == ("lpips", cached)
    cached.write_bytes(b"half a download")
    choice = choose_perceptual_metric(None)
    assert "passed over" in choice.notes[0]
    if weights_file() is not None:
        assert choice.metric.name == "st_lpips"


def test_named_files_that_cannot_be_used_are_errors(hub, tmp_path):
    with pytest.raises(PerceptualMetricError, match=r"--lpips-weights: .*no such file"):
        choose_perceptual_metric(tmp_path / "none.pth")
    wrong = tmp_path / "wrong.pth"
    torch.save({"features.0.weight": torch.zeros(1)}, wrong)
    with pytest.raises(PerceptualMetricError, match=f"is not {BACKBONE_NAME}"):
        choose_perceptual_metric(wrong)


def test_without_the_lpips_package(hub, backbone, monkeypatch):
    monkeypatch.setitem(sys.modules, "lpips", None)
    with pytest.raises(PerceptualMetricError, match="pip install lpips"):
        choose_perceptual_metric(backbone)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning:torchvision")
def test_equals_the_packages_own_loading(hub, backbone):
    """lpips reads the backbone from the hub cache when it is there: the value must be the same."""
    import lpips

    hub.mkdir(parents=True)
    state = torch.load(backbone, weights_only=True)
    whole = torchvision.models.alexnet(weights=None)
    whole.load_state_dict(state, strict=False)
    torch.save(whole.state_dict(), hub / BACKBONE_NAME)
    theirs = lpips.LPIPS(net="alex", verbose=False)
    first, second = (torch.from_numpy(x)[None, None].expand(1, 3, -1, -1) * 2 - 1 for x in images())
    ours = load_lpips(backbone)
    torch.testing.assert_close(ours(first, second), theirs(first, second))
    assert float(ours(first, first)) == 0


@needs_stlpips
def test_st_lpips_is_zero_for_equal_images_and_grows(hub):
    metric = choose_perceptual_metric(None).metric
    assert metric.name == "st_lpips"
    assert "not comparable with LPIPS" in metric.definition
    image, other = images()
    assert metric.distance(image, image) == 0
    near, far = metric.distance(image + 0.02 * other, image), metric.distance(other, image)
    assert 0 < near < far
    # The same picture in another unit is the same picture.
    assert metric.distance(1000 * other, 1000 * image) == pytest.approx(far, rel=1e-4)
    assert np.isnan(metric.distance(image, np.zeros_like(image)))


@needs_stlpips
def test_st_lpips_equals_the_packages_own_code(monkeypatch):
    for name, member in (("IPython", "embed"), ("torchsummary", "summary")):
        if importlib.util.find_spec(name) is None:
            stand_in = types.ModuleType(name)
            setattr(stand_in, member, None)
            monkeypatch.setitem(sys.modules, name, stand_in)
    theirs = importlib.import_module("stlpips_pytorch.stlpips").LPIPS(
        net="alex", variant="shift_tolerant", verbose=False
    )
    ours = ShiftTolerantLpips.load(weights_file())
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(2, 3, 64, 80, generator=generator) * 2 - 1 for _ in range(2))
    with torch.no_grad():
        torch.testing.assert_close(ours(first, second), theirs(first, second).flatten())


def test_a_random_backbone_is_never_called_lpips(hub, monkeypatch):
    without_stlpips(monkeypatch)
    assert choose_perceptual_metric(None).metric is None
    assert not Path(hub).exists()
