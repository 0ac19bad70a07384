"""Metrics of an evaluation by hand and against scikit-image, and the difference that a convention makes."""

import math

import numpy as np
import pytest
import skimage.metrics
import torch
from PIL import Image
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.dataset import build_dataset
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.evaluation.evaluation import EvaluationOptions, ReconstructionError, evaluate
from swinmr_profiling.training.evaluation.evaluation_summary import summarise_evaluation, volume_table
from swinmr_profiling.training.evaluation.picture_grid import write_picture_grid
from tests.training.conftest import TINY_RUN, merged

CPU = torch.device("cpu")


class Plus(nn.Module):
    """Adds a constant: errors that can be calculated by hand."""

    def __init__(self, constant):
        super().__init__()
        self.constant = constant

    def forward(self, x):
        return x + self.constant


@pytest.fixture
def loader_of(tmp_path):
    """The test loader of `.npy` volumes in their own unit, fully sampled unless told otherwise."""

    def build(volumes, changes=None):
        folder = tmp_path / "test"
        folder.mkdir(exist_ok=True)
        for name, volume in volumes.items():
            np.save(folder / f"{name}.npy", np.asarray(volume, np.float32))
        data = {"source": "npy", "test_dir": str(folder), "num_workers": 0, "normalisation": "none"}
        data["degradation"] = {"mask": "random1d", "sampled_fraction": 1.0, "center_fraction": 0.1}
        config = config_from_dict(merged({**TINY_RUN, "data": data}, changes or {}))
        return build_loader(config, "test", dataset=build_dataset(config, "test"))

    return build


def constant_slices(*values, side=8):
    return np.stack([np.full((side, side), value) for value in values])


def test_both_conventions_by_hand(loader_of):
    """Slices of 4 and 2 everywhere, errors of 1.

    Volume: MSE 1, range 4: 20 log10 4 = 12.0412 dB; NMSE 1 / ((16 + 4) / 2) = 0.1.
    Slices: 12.0412 and 20 log10 2 = 6.0206 dB, mean 9.0309; NMSE 1/16 and 1/4, mean 0.15625.
    SSIM of constants: (2 m n + c1) / (m^2 + n^2 + c1), c1 = (0.01 range)^2: 4 and 5, 2 and 3.
    """
    result = evaluate(Plus(1.0), loader_of({"a": constant_slices(4, 2)}), CPU, EvaluationOptions())
    summary = summarise_evaluation(result)
    volume, by_slice = summary["volume"], summary["slice"]
    assert volume["psnr_db"]["reconstruction"]["mean"] == pytest.approx(12.0412, abs=1e-3)
    assert volume["nmse"]["reconstruction"]["mean"] == pytest.approx(0.1, rel=1e-5)
    c1 = 0.04**2
    of_slices = [(40 + c1) / (41 + c1), (12 + c1) / (13 + c1)]
    assert volume["ssim"]["reconstruction"]["mean"] == pytest.approx(np.mean(of_slices), rel=1e-5)
    assert by_slice["psnr_db"]["reconstruction"]["mean"] == pytest.approx(9.0309, abs=1e-3)
    assert by_slice["nmse"]["reconstruction"]["mean"] == pytest.approx(0.15625, rel=1e-5)
    c1 = 0.02**2
    of_slices[1] = (12 + c1) / (13 + c1)
    assert by_slice["ssim"]["reconstruction"]["mean"] == pytest.approx(np.mean(of_slices), rel=1e-5)
    assert [one.data_range for one in result.slices] == pytest.approx([4, 2])
    assert result.volumes[0].data_range == pytest.approx(4)
    assert "volume's maximum" in volume["definition"]
    assert "own maximum" in by_slice["definition"]


def test_the_4_db_trap(loader_of):
    """The same errors: a slice 8 dB darker than the volume's brightest costs the mean over slices 4 dB."""
    dark = 10 ** (-8 / 20)
    result = evaluate(Plus(0.01), loader_of({"a": constant_slices(1, dark)}), CPU, EvaluationOptions())
    summary = summarise_evaluation(result)
    means = [summary[name]["psnr_db"]["reconstruction"]["mean"] for name in ("volume", "slice")]
    assert means[0] == pytest.approx(40, abs=1e-3)
    assert means[0] - means[1] == pytest.approx(4, abs=1e-3)


def test_scikit_image_states_the_same_and_the_baseline_stands_beside(loader_of):
    rng = np.random.default_rng(0)
    volume = rng.random((3, 20, 24)) + 0.2
    layout = {"data.layout": "slices_first"}
    loader = loader_of({"a": volume}, {**layout, "data.degradation.sampled_fraction": 0.4})
    result = evaluate(Plus(0.05), loader, CPU, EvaluationOptions())
    zero_filled = np.stack([loader.dataset[i]["input"][0].numpy() for i in range(3)])
    top = float(volume.max())
    for source, images in (("zero_filled", zero_filled), ("reconstruction", zero_filled + 0.05)):
        psnr = skimage.metrics.peak_signal_noise_ratio(volume, images, data_range=top)
        assert getattr(result.volumes[0], source)["psnr_db"] == pytest.approx(psnr, abs=1e-4)
        for i, one in enumerate(result.slices):
            own = float(volume[i].max())
            structure = skimage.metrics.structural_similarity(
                volume[i], images[i].astype(float), data_range=own
            )
            assert getattr(one, source)["ssim"] == pytest.approx(structure, abs=1e-5)
            error = skimage.metrics.normalized_root_mse(volume[i], images[i], normalization="euclidean")
            assert getattr(one, source)["nmse"] == pytest.approx(error**2, rel=1e-4)
    gain = summarise_evaluation(result)["volume"]["psnr_db"]["gain"]["mean"]
    values = [getattr(result.volumes[0], source)["psnr_db"] for source in ("reconstruction", "zero_filled")]
    assert gain == pytest.approx(values[0] - values[1])
    assert result.slices[0].sampled_fraction == pytest.approx(0.4, abs=0.05)


def test_batches_across_volumes_change_nothing(loader_of):
    rng = np.random.default_rng(1)
    volumes = {name: rng.random((slices, 10, 10)) for name, slices in (("a", 2), ("b", 3), ("c", 1))}
    one = evaluate(Plus(0.1), loader_of(volumes), CPU, EvaluationOptions())
    many = evaluate(Plus(0.1), loader_of(volumes, {"data.val_batch_size": 4}), CPU, EvaluationOptions())
    assert [unit.slices for unit in one.volumes] == [2, 3, 1]
    assert [unit.volume for unit in one.volumes] == ["a.npy", "b.npy", "c.npy"]
    for first, second in zip(one.volumes + one.slices, many.volumes + many.slices, strict=True):
        assert first.reconstruction == pytest.approx(second.reconstruction, rel=1e-6)


def test_a_limit_and_a_stop_leave_what_was_measured(loader_of):
    loader = loader_of({"a": constant_slices(1, 2, 3), "b": constant_slices(1, 2)})
    limited = evaluate(Plus(0.1), loader, CPU, EvaluationOptions(limit=4, pictures=2))
    assert len(limited.slices) == 4
    assert [unit.slices for unit in limited.volumes] == [3, 1]
    assert [picture.measured.slice for picture in limited.pictures] == [0, 0]
    assert limited.stopped_by is None
    answers = iter([None, None, "SIGINT"])
    stopped = evaluate(Plus(0.1), loader, CPU, EvaluationOptions(), stop=lambda: next(answers))
    assert stopped.stopped_by == "SIGINT"
    assert [unit.slices for unit in stopped.volumes] == [2]
    at_once = evaluate(Plus(0.1), loader, CPU, EvaluationOptions(), stop=lambda: "SIGTERM")
    assert summarise_evaluation(at_once)["volume"]["psnr_db"]["reconstruction"]["mean"] is None


def test_pictures_are_spread_over_the_set(loader_of):
    loader = loader_of({"a": constant_slices(1, 2, 3, 4, 5)})
    result = evaluate(Plus(0.1), loader, CPU, EvaluationOptions(pictures=3))
    assert [picture.measured.slice for picture in result.pictures] == [0, 2, 4]
    assert np.allclose(result.pictures[1].reconstruction - result.pictures[1].target, 0.1, atol=1e-5)


def test_the_bar_of_colours_is_smooth(loader_of, tmp_path):
    result = evaluate(Plus(0.1), loader_of({"a": constant_slices(1, 2)}), CPU, EvaluationOptions(pictures=2))
    write_picture_grid(result.pictures, tmp_path / "p.png", "a title")
    with Image.open(tmp_path / "p.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    # Beside the pictures a column of the bar has a colour for nearly each of its pixels; in 20 steps it had 20.
    right = pixels[:, int(0.9 * pixels.shape[1]) :]
    most = max(len(np.unique(right[:, column], axis=0)) for column in range(right.shape[1]))
    assert most > 150


def test_empty_slices_are_null_and_counted(loader_of):
    result = evaluate(Plus(0.1), loader_of({"a": constant_slices(0, 1)}), CPU, EvaluationOptions())
    assert math.isnan(result.slices[0].reconstruction["nmse"])
    summary = summarise_evaluation(result)["slice"]
    block = summary["nmse"]
    assert (summary["count"], block["reconstruction"]["count"]) == (2, 1)
    assert block["reconstruction"]["mean"] == pytest.approx(0.01, rel=1e-4)
    empty = evaluate(Plus(0.1), loader_of({"a": constant_slices(0)}), CPU, EvaluationOptions())
    assert summarise_evaluation(empty)["volume"]["psnr_db"]["reconstruction"]["mean"] is None
    assert volume_table(empty)[0]["reconstruction"]["psnr_db"] is None


def test_training_mode_is_given_back_and_bad_networks_are_told(loader_of):
    loader = loader_of({"a": constant_slices(1)})
    network = Plus(0.1)
    evaluate(network, loader, CPU, EvaluationOptions())
    assert network.training
    with pytest.raises(ReconstructionError, match="size of its input"):
        evaluate(nn.MaxPool2d(2), loader, CPU, EvaluationOptions())
    with pytest.raises(DataError, match="6 x 6; SSIM needs at least 7 x 7"):
        evaluate(network, loader_of({"a": constant_slices(1, side=6)}), CPU, EvaluationOptions())
