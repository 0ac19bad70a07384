"""`training.step`: a step of the user's own, profiled beside packages of his own; consent, failures, edits."""

import json

import pytest

from swinmr_profiling import predict_training
from tests.conftest import REPOSITORY, run_command

QUICK = ("--device", "cpu", "--num-runs", "1", "--warmup", "0")
STEPS = '''
import sys
import time

import torch
from torch import nn

import configs
import models
import training
import utils
from models import WIDTH

print("this goes to standard error")


class Gan:
    """Two networks, two optimizers; the second steps in every third call."""

    def setup(self, device):
        self.generator = nn.Sequential(nn.Linear(16, WIDTH), nn.GELU(), nn.Linear(WIDTH, 16)).to(device)
        self.judge = nn.Sequential(nn.Linear(16, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1)).to(device)
        self.of_generator = torch.optim.Adam(self.generator.parameters())
        self.of_judge = torch.optim.Adam(self.judge.parameters())
        self.calls = 0

    def batch(self, size):
        return torch.zeros(size, 16), torch.zeros(size, 16)

    def step(self, batch):
        low, high = batch
        fake = self.generator(low)
        self.of_generator.zero_grad()
        ((fake - high).abs().mean() - self.judge(fake).mean()).backward()
        self.of_generator.step()
        (self.judge(high).relu().mean() + self.judge(fake.detach()).relu().mean()).backward()
        self.calls += 1
        if self.calls % 3 == 0:
            self.of_judge.step()
            self.of_judge.zero_grad()
        print(open(__file__).readline())


network = nn.Conv2d(1, 8, 3, padding=1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def of_the_file(batch):
    with torch.autocast(batch["input"].device.type, torch.bfloat16):
        output = network(batch["input"])
    return (output.float().mean(1, keepdim=True) - batch["target"]).square().mean()


def asks(batch):
    loss = of_the_file(batch)
    if loss.item() > 1:  # a value
        loss = torch.stack([loss] * 100_000).mean()
    return loss


def raises(batch):
    raise KeyError("scale")


def leaves(batch):
    sys.exit(3)


def dies(batch):
    import os

    os._exit(7)


def hangs(batch):
    time.sleep(600)


nothing = 3
'''
NETWORK = "from torch import nn\n\n\ndef network():\n    return nn.Conv2d(1, 1, 3, padding=1)\n"


@pytest.fixture
def own_step(tmp_path):
    """Writes the user's files, with packages named as this project's rooms, and a config; returns the config's file."""
    for name, text in (("models", "WIDTH = 32\n"), ("configs", ""), ("training", ""), ("utils", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "net.py").write_text(NETWORK)

    def write(name, **training):
        model = {"net_type": "custom", "target": "net.py:network", "input_shapes": [[1, 16, 16]]}
        data = {"batch_size": 4, "source": "phantom", "use_patches": False}
        file = tmp_path / f"{name}.json"
        sections = {"model": model, "data": data, "training": {"step": f"steps.py:{name}", **training}}
        file.write_text(json.dumps(sections))
        return file

    return write


def line_of(text):
    return 1 + next(number for number, line in enumerate(STEPS.splitlines()) if text in line)


@pytest.mark.slow
def test_a_step_is_predicted_counted_and_measured(
    profile_model, own_step, read_profile, tmp_path, monkeypatch
):
    run = profile_model(
        "--config", own_step("Gan"), *QUICK, "--batch-sizes", "4", "--trust-config", "--measure-training",
        "--no-cache", "--output", "-", training=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    profile = json.loads(run.stdout)
    assert "this goes to standard error" in run.stderr
    model = profile["memory_model"]
    [own] = model["settings"]
    assert (model["loss"], model["optimizer"], own["precision"]) == (
        "training.step Gan",
        "the step's own",
        "fp32",
    )
    assert own["checked"]
    # Weights of both networks: 16 x 32 + 32, 32 x 16 + 16; 16 x 32 + 32, 32 + 1. Each tensor takes whole blocks of
    # 512 bytes; Adam's two moments of each, the judge's too, which come with its third call alone.
    tensors = [16 * 32, 32, 32 * 16, 16, 16 * 32, 32, 32, 1]
    held = sum(-(-4 * count // 512) * 512 for count in tensors)
    assert own["peak"]["by_category"]["parameters"] == held
    assert own["peak"]["by_category"]["optimizer_state"] == 2 * held
    # The same step by hand from Python has the same table of bytes.
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {"__file__": str(tmp_path / "steps.py"), "__name__": "steps"}
    exec(STEPS.replace("import models\n", "").replace("from models import WIDTH", "WIDTH = 32"), names)
    by_hand = predict_training(names["Gan"](), batch_sizes=(4,)).config_setting.to_json()
    assert by_hand["sizes"] == own["sizes"]
    training = profile["batch_profiling"]["4"]["training"]
    assert (training["source"], training["steps_run"], training["input_shape"]) == ("measured", 6, [4, 16])
    assert training["validation"] is None
    # Products of one call: generator forward 1, backward 2 less the input's first; judge three forwards.
    first, second, last = 16 * 32, 32 * 16, 32
    of_generator = 2 * (first + second) + second
    judged = (first + last) * 3 + 2 * (first + last) + 2 * (2 * last + first)
    counted = profile["architecture"]["training_macs"]
    assert counted["per_sample"]["macs"] == 4 / 4 * (of_generator + judged)


@pytest.mark.slow
def test_a_function_of_the_file_and_its_autocast(profile_model, own_step, read_profile, tmp_path):
    run = profile_model(
        "--config",
        own_step("of_the_file"),
        "--device",
        "cpu",
        "--predict-only",
        "--trust-config",
        "--no-cache",
    )
    assert run.returncode == 0, run.stderr
    model = read_profile(tmp_path / "results/profile_results.json")["memory_model"]
    assert model["settings"][0]["precision"] == "bf16"
    # 8 x 9 weights and 8 biases: a block each; their momentum as much.
    assert model["settings"][0]["peak"]["by_category"]["parameters"] == 2 * 512
    assert "Rests on: validation is not in it: the step has no validate(batch)" in run.stdout


def test_nothing_is_imported_without_consent(profile_model, own_step, tmp_path):
    (tmp_path / "steps.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{STEPS}")
    config = own_step("Gan")
    plain = json.loads(config.read_text())
    plain["model"] = {
        "net_type": "swinir",
        "img_size": 16,
        "window_size": 8,
        "depths": [1],
        "num_heads": [1],
        "embed_dim": 4,
    }
    config.write_text(json.dumps(plain))
    run = profile_model("--config", config, "--device", "cpu", "--predict-only")
    assert run.returncode == 2
    assert "training.step: this config would import and run steps.py:Gan; pass --trust-config" in run.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "predicted", "measured"),
    [
        (
            "raises",
            f"steps.py:{line_of('raise KeyError')}: KeyError: 'scale'",
            ("exception", "KeyError: 'scale'"),
        ),
        ("leaves", "ends Python (sys.exit(3))", ("exception", "ends Python (sys.exit(3))")),
        ("dies", "ended with exit status 7", ("crashed", "ended with exit status 7")),
    ],
)
def test_a_step_that_fails_is_the_documented_failure(profile_model, own_step, name, predicted, measured):
    run = profile_model(
        "--config", own_step(name), *QUICK, "--batch-sizes", "1", "--trust-config", "--measure-training",
        "--no-cache", "--output", "-", training=True,
    )  # fmt: skip
    assert run.returncode == 4, run.stderr
    profile = json.loads(run.stdout)
    [told] = [one["message"] for one in profile["warnings"] if one["code"] == "memory_not_predicted"]
    assert predicted in told
    training = profile["batch_profiling"]["1"]["training"]
    assert training["error"] == measured[0]
    assert measured[1] in training["detail"]
    assert profile["batch_profiling"]["1"]["timing"]["median_ms"] > 0


@pytest.mark.slow
def test_a_step_that_hangs_ends_by_the_timeout(profile_model, own_step, read_profile, tmp_path):
    run = profile_model(
        "--config", own_step("hangs"), *QUICK, "--batch-sizes", "1", "--trust-config", "--measure-training",
        "--no-cache", "--timeout", "8", training=True, fresh=True,
    )  # fmt: skip
    assert run.returncode == 4, run.stderr
    profile = read_profile(tmp_path / "results/profile_results.json")
    assert any("no result within 8 s (--timeout)" in one["message"] for one in profile["warnings"])
    assert profile["batch_profiling"]["1"]["training"]["error"] == "killed"


@pytest.mark.slow
def test_a_line_that_asks_is_named_and_an_assumption_is_told(profile_model, own_step, read_profile, tmp_path):
    place = f"steps.py:{line_of('# a value')}"
    arguments = ("--device", "cpu", "--predict-only", "--trust-config", "--no-cache")
    run = profile_model("--config", own_step("asks"), *arguments)
    assert run.returncode == 4, run.stderr
    warnings = read_profile(tmp_path / "results/profile_results.json")["warnings"]
    [told] = [one["message"] for one in warnings if one["code"] == "memory_not_predicted"]
    assert f"{place}: 'if loss.item() > 1: # a value' asks for a tensor's value" in told
    assert f'assume={{"{place}": 0.0}} (in a config training.assume)' in told
    peaks = {}
    for value in (0, 2.5):
        run = profile_model("--config", own_step("asks", assume={place: value}), *arguments)
        assert run.returncode == 0, run.stderr
        assert f"Rests on: {place} gives {value!r} (assume)." in run.stdout
        model = read_profile(tmp_path / "results/profile_results.json")["memory_model"]
        assert f"{place} gives {value!r} (assume)" in model["assumptions"]
        peaks[value] = model["settings"][0]["sizes"]["1"]["live_bytes"]
    assert peaks[0] < 4 * 100_000 < peaks[2.5]


@pytest.mark.slow
def test_what_is_no_step_is_told_in_one_line(profile_model, own_step, tmp_path):
    for name, told in (
        ("nothing", "steps.py:nothing is a int: give a function step(batch)"),
        ("Gann", "module 'steps' has no attribute 'Gann'"),
    ):
        run = profile_model(
            "--config", own_step(name), *QUICK, "--batch-sizes", "1", "--trust-config", training=True
        )
        assert told in run.stderr, run.stderr
    config = own_step("Gan", step="none.py:Gan")
    run = profile_model("--config", config, *QUICK, "--trust-config")
    assert run.returncode == 2
    assert "none.py: no such file" in run.stderr


@pytest.mark.slow
def test_train_py_notices_an_edit_of_the_step(profile_model, own_step, tmp_path):
    config = own_step("of_the_file", total_steps=1, profile="results/profile_results.json")
    raw = json.loads(config.read_text())
    raw["data"] |= {"batch_size": "auto", "phantom": {"slices": 4, "val_slices": 2}, "num_workers": 0}
    raw["logging"] = {"tensorboard": False}
    config.write_text(json.dumps(raw))
    run = profile_model(
        "--config", config, "--device", "cpu", "--predict-only", "--trust-config", "--no-cache",
        "--gpu-memory", "1GiB", "--headroom", "0.1",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    # The step's own file, and one that it imports.
    for name, text in (("steps.py", STEPS), ("models/__init__.py", "WIDTH = 32\n")):
        (tmp_path / name).write_text(text + "# edited\n")
        run = run_command("train.py", "--config", config, "--device", "cpu", "--trust-config", cwd=tmp_path)
        assert run.returncode == 2
        assert "was made with another network, patch, precision, loss or optimizer" in run.stderr
        (tmp_path / name).write_text(text)
    raw["data"]["batch_size"] = 2
    config.write_text(json.dumps(raw))
    run = run_command("train.py", "--config", config, "--device", "cpu", "--trust-config", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "step 1 of 1" in run.stdout


@pytest.mark.slow
def test_an_option_file_with_a_discriminator(profile_model, tmp_path, read_profile):
    text = (REPOSITORY / "tests/configs/option_files/basicsr_msrgan_x4.yml").read_text()
    (tmp_path / "gan.yml").write_text(text.replace("num_block: 16", "num_block: 1"))
    run = profile_model(
        "--config", "gan.yml", *QUICK, "--batch-sizes", "2", "--image-size", "32", "--no-cache", "--measure-training",
        training=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "network_d VGGStyleDiscriminator: training is predicted as SRGANModel's step" in run.stderr
    profile = read_profile(tmp_path / "results/profile_results.json")
    model = profile["memory_model"]
    [own] = model["settings"]
    assert model["loss"] == "0.01 spatial + 1 perceptual + 0.005 adversarial"
    # The generator: 3 -> 64, a block of two convolutions, two to four times the channels, two more (all 3 x 3).
    generator = (27 * 64 + 64) + 2 * (576 * 64 + 64) + 2 * (576 * 256 + 256) + (576 * 64 + 64) + (576 * 3 + 3)
    judge, perceptual = 14_499_401, 20_024_384
    assert own["ddp_bucket_bytes"] == 4 * (generator + judge)
    categories = own["peak"]["by_category"]
    # The generator's moving average too; buffers of norms, and blocks of 512 bytes.
    held = 4 * (2 * generator + judge + perceptual)
    assert held <= categories["parameters"] <= 1.001 * held
    assert categories["optimizer_state"] == pytest.approx(8 * (generator + judge), rel=0.001)
    training = profile["batch_profiling"]["2"]["training"]
    assert training["steps_run"] == 3
    # The averaged generator on a whole image, as in BasicSR's validation.
    assert own["validation"]["input_shape"] == training["validation"]["input_shape"] == [1, 3, 32, 32]
    assert own["validation"]["allocated_bytes"] < own["sizes"]["2"]["allocated_bytes"]
    # Both judge images of 128 x 128: conv after conv, of the first stage alone 9 x 3 x 64 products a pixel.
    assert profile["architecture"]["training_macs"]["per_sample"]["macs"] > 3 * 128 * 128 * 27 * 64
    run = run_command("train.py", "--config", "gan.yml", "--device", "cpu", cwd=tmp_path)
    assert run.returncode == 2
    assert "trained by its own framework" in run.stderr
