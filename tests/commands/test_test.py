"""test.py as a user runs it: every format, offline, interrupted, with published weights, and with every mistake."""

import csv
import importlib.util
import json
import os

import nibabel
import numpy as np
import PIL.Image
import pytest
import torch
from pydicom.uid import generate_uid

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.run.checkpoints import write_checkpoint
from tests.conftest import REPOSITORY, run_command
from tests.training.conftest import TINY_RUN, merged
from tests.training.data.test_sources import write_dicom, write_fastmri

FAULT_INJECTION = REPOSITORY / "tests/scripts/fault_injection"


def command_of(name):
    """The command's module; `test` and the like are names of the standard library too."""
    spec = importlib.util.spec_from_file_location(f"command_{name}", REPOSITORY / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def write_config(tmp_path):
    """A config whose run has a best checkpoint of random weights."""

    def write(changes=None, checkpoint=True, name="tiny.json"):
        raw = merged({**TINY_RUN, "paths": {"root": "runs"}}, {"data.patch_size": None, **(changes or {})})
        file = tmp_path / name
        file.write_text(json.dumps(raw))
        if checkpoint:
            config = config_from_dict(raw)
            params = build_model(config).module.state_dict()
            content = {
                "params": params,
                "params_ema": None,
                "step": 7,
                "config": config.model_dump(mode="json"),
            }
            write_checkpoint(content, tmp_path / "runs/tiny/checkpoints/best.pth")
        return file

    return write


@pytest.fixture
def run_test(tmp_path, monkeypatch, capsys):
    """Runs the command in this process; returns (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = command_of("test").main([*map(str, arguments), "--device", "cpu"])
        return status, *capsys.readouterr()

    return run


def read_summary(folder):
    def refuse_constant(name):
        raise AssertionError(f"{name} in a JSON file")

    return json.loads((folder / "summary.json").read_text(), parse_constant=refuse_constant)


def test_writes_table_summary_and_pictures(write_config, run_test, tmp_path):
    config = write_config({"evaluation.num_samples_to_save": 2, "data.phantom.coils": 2})
    status, out, err = run_test("--config", config)
    assert status == 0, err
    folder = tmp_path / "runs/tiny/evaluation"
    assert str(folder) in out
    assert "zero-filled" in out
    assert "k-space simulated from complex images" in out
    summary = read_summary(folder)
    assert summary["status"] == "complete"
    assert summary["checkpoint"]["step"] == 7
    assert summary["checkpoint"]["weights"] == "params"
    assert len(summary["checkpoint"]["sha256"]) == len(summary["config"]["sha256"]) == 64
    assert summary["data"]["kspace_simulated"] is True
    assert 0 < summary["data"]["sampled_fraction"]["mean"] < 1
    for convention in ("volume", "slice"):
        block = summary["metrics"][convention]
        assert block["definition"]
        assert block["data_range"]
        for metric in ("psnr_db", "ssim", "nmse"):
            assert block[metric]["reconstruction"]["mean"] is not None
            assert block[metric]["zero_filled"]["mean"] is not None
            # One volume: no interval, and the summary says why.
            assert block[metric]["gain"]["interval_95"] is None
    assert any("at least 2" in note for note in summary["bootstrap"]["notes"])
    latency = summary["latency"]
    assert latency["input_shape"] == [1, 1, 32, 32]
    assert latency["num_runs"] == len(latency["samples_ms"]) >= 2
    assert latency["warmup_runs"] >= 1
    rows = list(csv.DictReader((folder / "slices.csv").open()))
    assert [row["slice"] for row in rows] == ["0", "1"]
    mean = np.mean([float(row["psnr_db"]) for row in rows])
    assert mean == pytest.approx(summary["metrics"]["slice"]["psnr_db"]["reconstruction"]["mean"])
    assert summary["pictures"]["file"] == "pictures.png"
    assert "error_scale" in summary["pictures"]
    with PIL.Image.open(folder / "pictures.png") as picture:
        assert min(picture.size) > 100
    assert sorted(file.name for file in folder.iterdir()) == ["pictures.png", "slices.csv", "summary.json"]


def npy(folder):
    np.save(folder / "a.npy", np.random.default_rng(0).random((2, 32, 32), np.float32))
    np.save(folder / "b.npy", np.random.default_rng(1).random((1, 32, 32), np.float32))


def nifti(folder):
    volume = np.random.default_rng(0).random((32, 32, 3), np.float32)
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), folder / "a.nii.gz")


def png(folder):
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32), np.uint8)
    PIL.Image.fromarray(pixels).save(folder / "a.png")


def dicom(folder):
    write_dicom(folder / "a.dcm", np.random.default_rng(0).integers(0, 900, (2, 32, 32)), generate_uid(), 1)


def fastmri(folder, **more):
    """Coils with their sensitivities; `more` replaces or adds datasets, None leaves one out."""
    rng = np.random.default_rng(0)
    for number in range(2):
        kspace = rng.standard_normal((2, 3, 40, 36)) + 1j * rng.standard_normal((2, 3, 40, 36))
        target = rng.random((2, 32, 32)).astype(np.float32)
        maps = rng.standard_normal(kspace.shape) + 1j * rng.standard_normal(kspace.shape)
        datasets = {"reconstruction_rss": target, "sensitivity_maps": maps.astype(np.complex64), **more}
        kept = {name: value for name, value in datasets.items() if value is not None}
        write_fastmri(folder / f"{number}.h5", kspace.astype(np.complex64), **kept)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("write", [npy, nifti, png, dicom, fastmri])
def test_every_format_with_data_consistency(write_config, run_test, tmp_path, write):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    config = write_config(
        {"data.source": write.__name__, "data.test_dir": "data", "evaluation.save_images": False}
    )
    status, _, err = run_test("--config", config, "--data-consistency", "--output", "there")
    assert status == 0, err
    summary = read_summary(tmp_path / "there")
    assert summary["data_consistency"]["applied"] is True
    assert summary["data_consistency"]["method"].startswith("hard")
    assert summary["data"]["kspace_simulated"] is (write is not fastmri)
    assert ("measured k-space" in summary["data"]["kspace"]) is (write is fastmri)
    assert summary["metrics"]["volume"]["psnr_db"]["reconstruction"]["mean"] is not None
    assert summary["pictures"]["file"] is None
    assert not (tmp_path / "there/pictures.png").exists()
    if write is npy:
        low, high = summary["metrics"]["volume"]["psnr_db"]["reconstruction"]["interval_95"]
        assert low <= summary["metrics"]["volume"]["psnr_db"]["reconstruction"]["mean"] <= high


@pytest.mark.slow
def test_data_consistency_of_coils_without_sensitivities_is_refused(write_config, run_test, tmp_path):
    """Guessed from the zero-filled image, the coils' shares make a perfect image worse (38.8 dB)."""
    (tmp_path / "data").mkdir()
    fastmri(tmp_path / "data", sensitivity_maps=None)
    config = write_config({"data.source": "fastmri", "data.test_dir": "data"})
    status, _, err = run_test("--config", config, "--data-consistency", "--output", "there")
    assert status == 2
    assert "error: 0.h5 has several coils without sensitivities, which --data-consistency needs" in err
    assert not (tmp_path / "there/summary.json").exists()
    status, _, err = run_test("--config", config, "--output", "there")
    assert status == 0, err


@pytest.mark.slow
def test_drawn_masks_are_not_swinmrs(write_config, run_test, tmp_path):
    note = "mask gaussian1d is drawn, not SwinMR's mask file: figures are not comparable"
    status, out, err = run_test("--config", write_config(), "--limit", 1)
    assert status == 0, err
    assert note in out
    assert read_summary(tmp_path / "runs/tiny/evaluation")["data"]["mask_note"] == note
    np.save(tmp_path / "mask.npy", np.ones((32, 32)))
    named = {"data.degradation": {"mask": "file", "mask_file": "mask.npy"}}
    status, out, err = run_test("--config", write_config(named), "--limit", 1)
    assert status == 0, err
    assert "not comparable" not in out
    assert read_summary(tmp_path / "runs/tiny/evaluation")["data"]["mask_note"] is None


def test_published_weights_another_split_and_a_limit(write_config, run_test, tmp_path):
    config = write_config({"evaluation.save_images": False, "data.patch_size": 16}, checkpoint=False)
    weights = build_model(config_from_dict(TINY_RUN)).module.state_dict()
    torch.save({"params_ema": weights}, tmp_path / "published.pth")
    arguments = ("--config", config, "--checkpoint", "published.pth", "--split", "train", "--limit", 3)
    status, _, err = run_test(*arguments)
    assert status == 0, err
    summary = read_summary(tmp_path / "runs/tiny/evaluation_train")
    assert summary["checkpoint"]["format"] == "published weights"
    assert summary["checkpoint"]["weights"] == "params_ema"
    assert summary["data"]["evaluated_slices"] == summary["data"]["limit"] == 3
    # The training split is measured in whole images too.
    assert summary["volumes"][0]["image_size"] == [32, 32]


def test_data_that_differs_from_the_training_is_told(write_config, run_test):
    write_config()
    changed = {"data.degradation": {"mask": "radial"}, "evaluation.save_images": False}
    status, out, _ = run_test("--config", write_config(changed, checkpoint=False))
    assert status == 0
    assert "note: data.degradation.mask: trained with gaussian1d, tested with radial" in out


def test_an_interruption_keeps_what_was_measured(write_config, run_test, tmp_path, monkeypatch):
    import swinmr_profiling.training.evaluation.evaluation_run as evaluation_run

    original = evaluation_run.evaluate

    def interrupted(*arguments, stop, **options):
        answers = iter([None, "SIGINT"])
        return original(*arguments, stop=lambda: next(answers), **options)

    monkeypatch.setattr(evaluation_run, "evaluate", interrupted)
    status, _, err = run_test("--config", write_config())
    assert status == 4
    assert "stopped by SIGINT after 1 slices" in err
    summary = read_summary(tmp_path / "runs/tiny/evaluation")
    assert summary["status"] == "partial"
    assert summary["data"]["evaluated_slices"] == 1
    assert summary["latency"] is None


def test_an_interruption_before_the_first_slice_leaves_the_earlier_evaluation(
    write_config, run_test, tmp_path, monkeypatch
):
    import swinmr_profiling.training.evaluation.evaluation_run as evaluation_run

    config = write_config({"evaluation.num_samples_to_save": 1})
    assert run_test("--config", config)[0] == 0
    folder = tmp_path / "runs/tiny/evaluation"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(before) == 3
    original = evaluation_run.evaluate
    monkeypatch.setattr(
        evaluation_run,
        "evaluate",
        lambda *arguments, stop, **options: original(*arguments, stop=lambda: "SIGTERM", **options),
    )
    status, out, err = run_test("--config", config)
    assert status == 4
    assert "stopped by SIGTERM after 0 slices" in err
    assert "no slice was evaluated, and what is there stays" in err
    assert "written to" not in out
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.slow
def test_a_disk_that_fills_up_loses_no_figure(write_config, tmp_path):
    """The table is written, the disk is full from then on: figures are printed, what is missing is told."""
    faults = {"full_disk_from": 1}
    environment = {**os.environ, "PYTHONPATH": str(FAULT_INJECTION), "FAULTS": json.dumps(faults)}
    run = run_command("test.py", "--config", write_config(), "--device", "cpu", cwd=tmp_path, env=environment)
    assert run.returncode == 4, run.stderr
    assert "Traceback" not in run.stderr
    assert "PSNR" in run.stdout
    assert run.stderr.count("No space left") == 2
    assert [file.name for file in (tmp_path / "runs/tiny/evaluation").iterdir()] == ["slices.csv"]


def offline(tmp_path, *missing):
    """An environment without any weights: an empty torch cache, and packages that cannot be imported."""
    faults = {"missing_packages": list(missing)}
    return {
        **os.environ,
        "PYTHONPATH": str(FAULT_INJECTION),
        "FAULTS": json.dumps(faults),
        "TORCH_HOME": str(tmp_path / "torch_home"),
    }


@pytest.mark.slow
def test_offline_without_any_weights_lpips_is_null_and_says_why(write_config, tmp_path):
    """And without matplotlib there are no pictures, but every figure."""
    environment = offline(tmp_path, "stlpips_pytorch", "matplotlib")
    config = write_config({"evaluation.metrics": ["psnr", "lpips"]})
    run = run_command("test.py", "--config", config, "--device", "cpu", cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    perceptual = read_summary(tmp_path / "runs/tiny/evaluation")["metrics"]["perceptual"]
    assert perceptual["lpips"] is None
    assert perceptual["st_lpips"] is None
    assert "alexnet-owt-7be5be79.pth" in perceptual["reason"]
    assert str(tmp_path / "torch_home/hub/checkpoints") in perceptual["reason"]
    assert "LPIPS: null" in run.stdout
    assert "no pictures" in run.stdout
    assert "matplotlib" in run.stdout
    # evaluation.metrics says what is printed.
    assert "PSNR" in run.stdout
    assert "NMSE  " not in run.stdout
    assert not (tmp_path / "torch_home").exists()


@pytest.mark.slow
def test_st_lpips_where_it_is_installed(write_config, run_test, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch_home"))
    from swinmr_profiling.training.evaluation.perceptual_metric import weights_file

    if weights_file() is None:
        pytest.skip("stlpips-pytorch is not installed")
    status, out, err = run_test("--config", write_config({"model.img_size": 64}))
    assert status == 0, err
    perceptual = read_summary(tmp_path / "runs/tiny/evaluation")["metrics"]["perceptual"]
    assert perceptual["lpips"] is None
    assert perceptual["st_lpips"]["reconstruction"]["mean"] > 0
    assert perceptual["st_lpips"]["zero_filled"]["mean"] > 0
    assert "ST-LPIPS" in out
    assert "st_lpips" in (tmp_path / "runs/tiny/evaluation/slices.csv").read_text()


@pytest.mark.slow
def test_images_too_small_for_lpips_are_no_failure(write_config, run_test, tmp_path):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/a.npy", np.random.default_rng(0).random((1, 8, 8), np.float32))
    torch.save(torchvision_backbone(), tmp_path / "alexnet.pth")
    config = write_config({"data.source": "npy", "data.test_dir": "data"})
    status, _, err = run_test("--config", config, "--lpips-weights", "alexnet.pth")
    assert status == 0, err
    perceptual = read_summary(tmp_path / "runs/tiny/evaluation")["metrics"]["perceptual"]
    assert perceptual["lpips"] is None
    assert "8 x 8" in perceptual["reason"]


def torchvision_backbone():
    import torchvision

    features = torchvision.models.alexnet(weights=None).features
    return {f"features.{key}": tensor for key, tensor in features.state_dict().items()}


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ["--checkpoint", "none.pth"], ["none.pth", "no such checkpoint"]),
        ({}, ["--lpips-weights", "none.pth"], ["--lpips-weights", "none.pth"]),
        ({"evaluation.lpips_weights": "none.pth"}, [], ["evaluation.lpips_weights", "none.pth"]),
        ({"data.source": "npy", "data.test_dir": "none"}, [], ["none", "data.test_dir"]),
        ({"data.source": "npy", "data.train_dir": "none"}, [], ["data.test_dir is not set"]),
        ({}, ["--output", "/dev/null/folder"], ["/dev/null"]),
    ],
)
def test_mistakes_are_one_line(write_config, run_test, changes, arguments, words):
    status, _, err = run_test("--config", write_config(changes), *arguments)
    assert status == 2
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert all(word in lines[0] for word in words), lines


def test_no_checkpoint_yet_and_another_architecture(write_config, run_test):
    status, _, err = run_test("--config", write_config(checkpoint=False))
    assert status == 2
    assert "best.pth" in err
    assert "--checkpoint" in err
    write_config()
    other = write_config({"model.embed_dim": 12}, checkpoint=False)
    status, _, err = run_test("--config", other)
    assert status == 2
    assert "conv_first" in err
