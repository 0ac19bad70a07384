"""train.py, test.py and validate_setup.py with a denoiser, as a user runs them."""

import copy
import csv
import json

import PIL.Image
import pytest

from tests.commands.test_test import command_of, read_summary
from tests.training.conftest import TINY_RUN, merged
from tests.training.denoising.test_denoising_step import TINY_UNET


@pytest.fixture
def write_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(changes=None):
        base = {
            **TINY_UNET,
            "model.in_chans": 2,
            "training.total_steps": 2,
            "training.validate_every_steps": 2,
        }
        base["evaluation.sampling"] = {"sampling_steps": 3, "samples_per_slice": 2, "seed": 5}
        raw = merged({**TINY_RUN, "paths": {"root": "runs"}}, copy.deepcopy({**base, **(changes or {})}))
        file = tmp_path / "denoiser.json"
        file.write_text(json.dumps(raw))
        return file

    return write


@pytest.mark.slow
def test_train_then_sample(write_config, tmp_path, capsys):
    config = write_config({"evaluation.sampling.sampler": "ancestral"})
    assert command_of("train").main(["--config", str(config), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "loss: mse of v, min-SNR weights (gamma 5)" in out
    assert "\nvalidation: loss 0." in out
    assert (tmp_path / "runs/tiny/checkpoints/best.pth").exists()
    assert command_of("test").main(["--config", str(config), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert (
        "sampling: ancestral, 3 steps, guidance 1, 2 samples a slice of 3 calls each, seed 5; "
        "data consistency at every step" in out
    )
    folder = tmp_path / "runs/tiny/evaluation"
    summary = read_summary(folder)
    sampling = summary["sampling"]
    assert (sampling["sampler"], sampling["sampling_steps"], sampling["seed"]) == ("ancestral", 3, 5)
    assert sampling["denoiser_calls_per_sample"] == 3
    error = sampling["sampled_kspace_error"]
    assert error["reconstruction"]["mean"] <= error["zero_filled"]["mean"] + 1e-6
    assert error["reconstruction"]["count"] == 2
    assert sampling["pixel_std"]["mean"] > 0
    assert sampling["sample_psnr_db"]["count"] == 4
    assert summary["data_consistency"]["applied"] is True
    assert summary["data_consistency"]["method"].startswith("at every step of sampling; hard")
    assert summary["latency"]["what"].startswith("one sample of one image, 3 calls")
    rows = list(csv.DictReader((folder / "slices.csv").open()))
    assert [row["samples"] for row in rows] == ["2", "2"]
    assert all(float(row["pixel_std"]) > 0 for row in rows)
    mean = sum(float(row["pixel_std"]) for row in rows) / 2
    assert mean == pytest.approx(sampling["pixel_std"]["mean"])
    with PIL.Image.open(folder / "pictures.png") as picture:
        assert picture.width > 1300  # a fifth column
    # The same command, the same images: every figure but times again.
    assert command_of("test").main(["--config", str(config), "--device", "cpu"]) == 0
    assert read_summary(folder)["metrics"] == summary["metrics"]
    assert list(csv.DictReader((folder / "slices.csv").open())) == rows


@pytest.mark.slow
def test_one_sample_has_no_spread(write_config, tmp_path):
    config = write_config({"evaluation.sampling.samples_per_slice": 1})
    assert command_of("train").main(["--config", str(config), "--device", "cpu"]) == 0
    assert command_of("test").main(["--config", str(config), "--device", "cpu"]) == 0
    summary = read_summary(tmp_path / "runs/tiny/evaluation")
    assert summary["sampling"]["pixel_std"] is None
    assert summary["sampling"]["reconstruction"] == "the sample"
    assert "samples" not in (tmp_path / "runs/tiny/evaluation/slices.csv").read_text().splitlines()[0]


def test_what_cannot_be_trained_is_one_line(write_config, capsys):
    model = {"net_type": "dit_denoiser", "img_size": 32, "patch_size": 8, "num_classes": 3}
    config = write_config({"model": {**model, "embed_dim": 16, "num_heads": 2, "depth": 1}})
    assert command_of("train").main(["--config", str(config), "--device", "cpu"]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert [line for line in errors if line.startswith("error:")] == [
        "error: model.num_classes: the data has no classes; null trains, classes can only be profiled"
    ]


def test_a_loss_whose_targets_no_data_has_is_one_line(write_config, capsys):
    """Cross entropy of images was a traceback in the first step."""
    changes = {
        "model": {"net_type": "timm", "name": "test_vit", "img_size": 32},
        "training.loss.type": "cross_entropy",
    }
    config = write_config({**changes, "training.diffusion": {}})
    assert command_of("train").main(["--config", str(config), "--device", "cpu"]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    [line] = [line for line in errors if line.startswith("error:")]
    assert line.startswith(f"error: {config}: model.net_type timm: a classifier, trained with labels")


def test_the_step_of_one_sample_is_a_denoisers_step(write_config):
    """What validate_setup.py runs in a process of its own: with a real sample, and with random values."""
    import torch

    from swinmr_profiling.configs import load_config
    from swinmr_profiling.training.setup.single_step_process import make_step

    config = load_config(write_config()).config.model_dump(mode="json")
    threads = torch.get_num_threads()
    for real in (True, False):
        request = {"config": config, "device": "cpu", "trust_config": False, "real_sample": real}
        report = make_step(request)
        assert report["loss"] >= 0
        assert report["peak_bytes"] > 0
    torch.set_num_threads(threads)


def test_the_step_of_one_sample_is_the_runs_own(write_config, monkeypatch):
    """Compiled and deterministic where the run is; refused with the run's own words."""
    import torch

    from swinmr_profiling.configs import load_config
    from swinmr_profiling.training.errors import LossError
    from swinmr_profiling.training.setup.single_step_process import make_step

    told = []
    monkeypatch.setattr(torch, "compile", lambda network: told.append("compiled") or network)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", told.append)
    threads = torch.get_num_threads()

    def step(changes):
        config = load_config(write_config(changes)).config.model_dump(mode="json")
        make_step({"config": config, "device": "cpu", "trust_config": False, "real_sample": False})
        torch.set_num_threads(threads)

    step({})
    step({"system.compile": True, "system.deterministic": True})
    assert told == [False, True, "compiled"]
    timm = {"net_type": "timm", "name": "test_vit", "img_size": 32}
    with pytest.raises(LossError, match="the data has no classes"):
        step({"model": timm, "training.diffusion": {}, "training.loss.type": "cross_entropy"})
