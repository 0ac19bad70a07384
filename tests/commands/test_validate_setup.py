"""validate_setup.py as a user runs it: what passes, what is missing, and planted faults."""

import importlib.util
import json
import os
import shutil
import sys
from collections import namedtuple

import numpy as np
import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.run.checkpoints import write_checkpoint
from swinmr_profiling.training.setup import setup_network, setup_software
from swinmr_profiling.training.setup.setup_checks import Check, Finding, failed, ok, overall, run_checks
from tests.conftest import REPOSITORY, run_command
from tests.training.conftest import TINY_RUN, merged

FAULT_INJECTION = REPOSITORY / "tests/scripts/fault_injection"


def skipping(*checks):
    return [word for check in checks for word in ("--skip", check)]


# What starts processes of its own, and what imports every package.
SLOW = skipping("training step", "distributed", "more packages")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def validate(tmp_path, monkeypatch, capsys):
    """Runs the command in this process with --json; returns (exit status, findings by check)."""
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("command_validate", REPOSITORY / "validate_setup.py")
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)

    def run(*arguments, device="cpu"):
        status = command.main([*map(str, arguments), "--device", device, "--json"])
        report = json.loads(capsys.readouterr().out)
        found = {}
        for finding in report["checks"]:
            found.setdefault(finding["check"], []).append(finding)
        return status, found

    return run


def of_status(found, status):
    return {name for name, findings in found.items() if any(f["status"] == status for f in findings)}


@pytest.mark.slow
def test_passes_from_another_folder_and_says_one_line_a_check(tmp_path):
    """The whole command, its processes included, on the packaged config."""
    config = REPOSITORY / "configs/train_packaged.json"
    run = run_command("validate_setup.py", "--config", config, "--device", "cpu", cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "warning") for line in lines[:-1]), run.stdout
    for words in ("1 sample, loss", "two gloo ranks met", "39,265 parameters", "31 slices in 3 volumes"):
        assert any(words in line and line.startswith("ok") for line in lines), words
    assert all(" -> " in line for line in lines[:-1] if line.startswith("warning"))
    assert lines[-1].startswith(("ok: 0 failed", "warning: 0 failed"))


def test_the_small_config_passes(validate):
    status, found = validate("--config", REPOSITORY / "configs/train_config_small.json", *SLOW)
    assert status == 0
    assert of_status(found, "failed") == set()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("package", ["fvcore", "lpips", "h5py"])
def test_says_exactly_which_package_is_lacking(write_config, tmp_path, package):
    environment = {
        **os.environ,
        "PYTHONPATH": str(FAULT_INJECTION),
        "FAULTS": json.dumps({"missing_packages": [package]}),
    }
    others = ("device", "data", "masks", "model", "loss", "training step", "LPIPS", "distributed")
    arguments = ("--config", write_config(), "--device", "cpu", "--json", *skipping(*others))
    run = run_command("validate_setup.py", *arguments, cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    findings = json.loads(run.stdout)["checks"]
    lacking = [finding for finding in findings if finding["check"].startswith("package ")]
    assert [(finding["check"], finding["status"]) for finding in lacking] == [
        (f"package {package}", "warning")
    ]
    assert "is not installed" in lacking[0]["detail"]
    assert f'pip install "{package}>=' in lacking[0]["advice"]


def test_a_package_that_this_config_needs_fails(write_config, validate, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    kept = [package for package in setup_software.OPTIONAL if package.name in ("tensorboard", "h5py")]
    monkeypatch.setattr(setup_software, "OPTIONAL", kept)
    arguments = skipping("training step", "distributed")
    status, found = validate("--config", write_config({"logging.tensorboard": True}), *arguments)
    assert status == 1
    assert of_status(found, "failed") == {"package tensorboard"}
    assert found["more packages"][0]["detail"].startswith("h5py")
    # The same gap is a warning where nothing needs it.
    status, found = validate("--config", write_config(), *arguments)
    assert status == 0
    assert found["package tensorboard"][0]["status"] == "warning"


def spoiled_data(folder):
    (folder / "data").mkdir()
    volume = np.ones((1, 32, 32), np.float32)
    volume[0, 3, 3] = np.nan
    np.save(folder / "data/spoiled.npy", volume)


def empty_folder(folder):
    (folder / "data").mkdir()


def small_volume(folder):
    (folder / "data").mkdir()
    np.save(folder / "data/small.npy", np.ones((1, 12, 40), np.float32))


def other_mask(folder):
    mask = np.zeros((20, 20), bool)
    mask[8:12, 8:12] = True
    np.save(folder / "mask.npy", mask)


def wrong_weights(folder):
    torch.save({"conv.weight": torch.zeros(1)}, folder / "weights.pth")


def other_run(folder):
    config = config_from_dict(merged(TINY_RUN, {"model.embed_dim": 12}))
    content = {"params": build_model(config).module.state_dict(), "step": 5}
    write_checkpoint(content, folder / "runs/tiny/checkpoints/step_000000005.pth")


def nothing(folder):
    pass


PLANTED = {
    "missing folder": (
        nothing,
        {"data.source": "npy", "data.train_dir": "data"},
        "data train",
        "no such folder",
    ),
    "empty folder": (
        empty_folder,
        {"data.source": "auto", "data.train_dir": "data"},
        "data train",
        "holds no data",
    ),
    "NaN slice": (
        spoiled_data,
        {"data.source": "npy", "data.train_dir": "data"},
        "data train",
        "spoiled.npy",
    ),
    "small volume": (small_volume, {"data.source": "npy", "data.train_dir": "data"}, "data train", "12 x 40"),
    "missing mask": (
        nothing,
        {"data.degradation": {"mask": "file", "mask_file": "mask.npy"}},
        "masks",
        "no such mask file",
    ),
    "mask of another size": (
        other_mask,
        {"data.degradation": {"mask": "file", "mask_file": "mask.npy"}},
        "masks",
        "20 x 20, k-space 32 x 32",
    ),
    "initial weights of another network": (
        wrong_weights,
        {"training.initial_weights": "weights.pth"},
        "model",
        "another architecture",
    ),
    "perceptual weights that are not there": (
        nothing,
        {"training.loss.components.perceptual": {"weight": 1, "weights_file": "vgg.pth"}},
        "loss",
        "vgg19-dcbb9e9d.pth",
    ),
    "LPIPS weights that are not there": (
        nothing,
        {"evaluation.lpips_weights": "alex.pth"},
        "LPIPS",
        "alex.pth",
    ),
    "plan that is not there": (nothing, {"training.plan": "none.json"}, "plan", "no such file"),
    "budget that nothing meets": (
        nothing,
        {"training.gradient_checkpointing": {"budget": "1KiB"}},
        "plan",
        "no set of modules brings a step",
    ),
    "run folder of another network": (other_run, {}, "run folder", "another architecture"),
    "automatic batch size without a profile": (
        nothing,
        {"data.batch_size": "auto", "training.profile": "none.json"},
        "profile",
        "none.json is not there",
    ),
    "own network without trust": (
        nothing,
        {"model": {"net_type": "custom", "target": "own:Net", "input_shapes": [[1, 8, 8]]}},
        "model",
        "--trust-config",
    ),
}


def test_what_follows_is_checked_as_the_budget_has_it(write_config, validate, monkeypatch):
    """The network that is built is the one whose modules are recomputed."""
    from swinmr_profiling.profiler.plan import budgeted_modules

    monkeypatch.setattr(budgeted_modules, "_chosen", lambda *arguments: ["layers.0"])
    seen = []

    def build(config, **keywords):
        seen.append(config.training.gradient_checkpointing)
        return build_model(config, **keywords)

    monkeypatch.setattr("swinmr_profiling.models.registry.build_model", build)
    config = write_config({"training.gradient_checkpointing": {"budget": "1GiB"}})
    status, found = validate("--config", config, *SLOW)
    assert status == 0
    assert found["plan"][0]["status"] == "ok"
    assert "recomputed for a budget of 1GiB (chosen now): layers.0" in found["plan"][0]["detail"]
    assert seen == [["layers.0"]]


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_told_by_its_own_check(write_config, validate, tmp_path, fault):
    plant, changes, check, words = PLANTED[fault]
    plant(tmp_path)
    if changes.get("model"):
        config = tmp_path / "own.json"
        config.write_text(json.dumps({"model": changes["model"], "logging": {"tensorboard": False}}))
    else:
        config = write_config(changes)
    status, found = validate("--config", config, *SLOW)
    assert status == 1
    assert of_status(found, "failed") == {check}
    (finding,) = [finding for finding in found[check] if finding["status"] == "failed"]
    assert words in finding["detail"]
    assert finding["advice"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.embed_dims": 8}, "embed_dims"),
        ({"data.patch_size": 64}, "patch_size"),
        ({"training.optimizer.lr": "fast"}, "training.optimizer.lr"),
    ],
)
def test_a_bad_config_is_2_and_the_checks_that_need_none_still_run(write_config, validate, changes, words):
    status, found = validate("--config", write_config(changes), *SLOW)
    assert status == 2
    assert words in found["config"][0]["detail"]
    assert found["packages"][0]["status"] == "ok"
    assert found["model"][0]["status"] == "not run"
    assert "config" in found["model"][0]["detail"]


def test_missing_config_and_bad_arguments(validate, tmp_path):
    status, found = validate("--config", "none.json", *SLOW)
    assert status == 2
    assert "none.json" in found["config"][0]["detail"]
    run = run_command("validate_setup.py", "--skip", "everything", cwd=tmp_path)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(write_config, validate):
    status, found = validate("--config", write_config(), *SLOW, device="cuda:1")
    assert status == 1
    assert of_status(found, "failed") == {"device"}


def test_a_full_disk(write_config, validate, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1000, 900, 100))
    status, found = validate("--config", write_config(), *SLOW)
    assert status == 1
    assert of_status(found, "failed") == {"disk"}
    assert "100" not in found["disk"][0]["advice"]


def test_a_step_that_does_not_fit_is_not_begun(write_config, validate, monkeypatch):
    monkeypatch.setattr(setup_network, "_free_bytes", lambda context: 2**20)
    monkeypatch.setattr(
        "swinmr_profiling.training.setup.single_step_process.run_single_step",
        lambda *a, **k: pytest.fail("the step was begun"),
    )
    status, found = validate("--config", write_config(), *skipping("distributed", "more packages"))
    assert status == 1
    assert of_status(found, "failed") == {"training step"}
    assert "does not fit: estimate in fp32" in found["training step"][0]["detail"]
    assert "patch_size" in found["training step"][0]["advice"]


@pytest.mark.slow
def test_a_step_that_hangs_is_ended(write_config, validate, tmp_path):
    """The user's own network that never returns in training: the process of the step is given up."""
    (tmp_path / "own_hanging.py").write_text(
        "import time, torch\n"
        "class Net(torch.nn.Conv2d):\n"
        "    def forward(self, x):\n"
        "        while self.training and x.device.type == 'cpu': time.sleep(1)\n"
        "        return super().forward(x)\n"
    )
    model = {
        "net_type": "custom",
        "target": "own_hanging:Net",
        "kwargs": {"in_channels": 1, "out_channels": 1, "kernel_size": 1},
        "input_shapes": [[1, 32, 32]],
    }
    config = tmp_path / "own.json"
    config.write_text(json.dumps({"model": model, "logging": {"tensorboard": False}}))
    skipped = skipping("distributed", "more packages")
    status, found = validate("--config", config, "--trust-config", "--timeout", 3, *skipped)
    assert status == 1
    assert "no step within 3 s" in found["training step"][0]["detail"]


def test_the_profile_of_another_network_is_stale(write_config, validate, tmp_path):
    def profile(**model):
        resolved = config_from_dict(merged(TINY_RUN, {f"model.{key}": value for key, value in model.items()}))
        content = {"schema_version": 1, "status": "complete"}
        content["config"] = {"resolved": resolved.model_dump(mode="json")}
        (tmp_path / "profile.json").write_text(json.dumps(content))

    config = write_config({"training.profile": "profile.json"})
    profile()
    _, found = validate("--config", config, *SLOW)
    assert found["profile"][0]["status"] == "ok"
    profile(embed_dim=16)
    status, found = validate("--config", config, *SLOW)
    assert status == 0
    assert found["profile"][0]["status"] == "warning"
    assert "embed_dim 16 there, 8 here" in found["profile"][0]["detail"]
    assert "scripts/profile_model.py --config" in found["profile"][0]["advice"]
    # The same network, kept somewhere else: a profile that was made on another machine.
    own = {"net_type": "custom", "target": "own:Net", "input_shapes": [[1, 8, 8]]}
    config = write_config({"training.profile": "profile.json", "model": own})
    resolved = {"model": {**own, "kwargs": {}, "target_folder": "/elsewhere"}}
    unset = ("training_input_shapes", "cross_check_input_shapes", "input_dtypes")
    resolved["model"].update(dict.fromkeys(unset))
    content = {"schema_version": 1, "status": "complete", "config": {"resolved": resolved}}
    (tmp_path / "profile.json").write_text(json.dumps(content))
    _, found = validate("--config", config, *SLOW)
    assert found["profile"][0]["status"] == "ok"
    (tmp_path / "profile.json").write_text("half a pro")
    _, found = validate("--config", config, *SLOW)
    assert "is not a profile" in found["profile"][0]["detail"]


def test_missing_optional_weights_are_warnings_that_name_the_file(
    write_config, validate, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch_home"))
    config = write_config({"training.loss.components.perceptual.weight": 0.0025})
    status, found = validate("--config", config, *SLOW)
    assert status == 0
    told = [finding for finding in found["loss"] if finding["status"] == "warning"]
    assert "vgg19-dcbb9e9d.pth" in told[0]["detail"]
    assert found["LPIPS"][0]["status"] == "warning"
    assert "alexnet-owt-7be5be79.pth" in found["LPIPS"][0]["advice"]


def test_checks_are_independent():
    """One that breaks is told and stops only what needs it."""

    def broken(context):
        raise KeyError("nobody expected this")

    seen = []
    checks = [
        Check("a", broken),
        Check("b", lambda context: [ok("b", "fine")]),
        Check("c", lambda context: [ok("c", "never")], needs=("b", "a")),
        Check("d", lambda context: [ok("d", "never")], needs=("c",)),
        Check("e", lambda context: [failed("e", "bad", "repair it")]),
    ]
    findings = run_checks(checks, None, skip=["e"], on_finding=seen.append)
    assert [finding.status for finding in findings] == ["failed", "ok", "not run", "not run", "not run"]
    assert "KeyError" in findings[0].detail
    assert "needs a, which failed" in findings[2].detail
    assert seen == findings
    assert overall(findings) == "failed"
    assert overall([Finding("a", "not run", "")]) == "ok"
