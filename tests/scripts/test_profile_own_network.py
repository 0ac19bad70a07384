"""The three commands of README's "Profile your own network", classes in files, and several networks in one call."""

import json
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import torch

from tests.conftest import REPOSITORY, run_command

OPTIONS = REPOSITORY / "tests/configs/option_files"
QUICK = ("--batch-sizes", "1", "--num-runs", "1", "--device", "cpu")
NETWORK = """
import torch
from models.layers import Layer          # the user's own packages, named as this project's rooms are
from utils import factor

class Class(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = Layer(3, dim)

    def forward(self, x):
        from configs import LATE        # also from inside a function
        import training.steps
        return self.layer(x) * factor * LATE * training.steps.ONE
"""
LAYERS = """
import torch

def Layer(inputs, outputs):
    return torch.nn.Conv2d(inputs, outputs, 3, padding=1)
"""


@pytest.fixture
def own_repository(tmp_path):
    """A network in a file, with the user's own packages `models`, `configs`, `training` and `utils` beside it."""
    folder = tmp_path / "path" / "to"
    files = {
        "file.py": NETWORK,
        "models/__init__.py": "",
        "models/layers.py": LAYERS,
        "configs/__init__.py": "LATE = 1\n",
        "training/__init__.py": "",
        "training/steps.py": "ONE = 1\n",
        "utils.py": "factor = 2\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder / "file.py"


def readme_commands():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Profile your own network")[2]
    return re.search(r"```bash\n(.*?)```", section, re.DOTALL)[1].strip().splitlines()


def test_three_commands_stand_in_the_first_screen():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert text[: text.index("## Profile your own network")].count("\n") < 30
    assert [shlex.split(line)[:2] for line in readme_commands()] == [
        [".venv/bin/python", "scripts/profile_model.py"]
    ] * 3


def test_readme_a_checkpoint(tmp_path, read_profile):
    from spandrel.architectures.Compact import Compact

    torch.save(
        {"params_ema": Compact(num_feat=8, num_conv=1, upscale=2).state_dict()}, tmp_path / "model.pth"
    )
    _, script, *arguments = shlex.split(readme_commands()[0])
    run = run_command(
        script, *arguments, *QUICK, "--image-size", "8", "--no-training", "--cross-check", "off", cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "results/profile_results.json")
    assert profile["config"]["resolved"]["model"]["net_type"] == "spandrel"
    # 8 x 8 pixels, products of 3 x 3: 3 x 8, 8 x 8, 8 x (3 x 2 x 2).
    assert profile["architecture"]["macs"] == 64 * 9 * (3 * 8 + 8 * 8 + 8 * 12)


@pytest.mark.slow
def test_readme_an_option_file_with_its_perceptual_network(tmp_path, read_profile):
    # As the file is but for a small generator: RRDBNet of 32 features would take minutes to trace.
    text = (OPTIONS / "basicsr_esrgan_x4.yml").read_text()
    text = text.replace("num_block: 23", "num_block: 1").replace(
        "batch_size_per_gpu: 16", "batch_size_per_gpu: 2"
    )
    (tmp_path / "train_ESRGAN_x4.yml").write_text(text)
    _, script, *arguments = shlex.split(readme_commands()[1])
    run = run_command(
        script, *arguments, "--batch-sizes", "2", "--device", "cpu", "--cross-check", "off", "--image-size", "32",
        cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    model = read_profile(tmp_path / "results/profile_results.json")["memory_model"]
    assert model["loss"] == "0.01 spatial + 1 perceptual"
    assert model["settings"][0]["patch_size"] == [32, 32]
    # VGG19 to conv5_4 (Simonyan and Zisserman 2015, table 2): all 20,024,384 numbers of its convolutions, 4 bytes each.
    categories = model["settings"][0]["peak"]["by_category"]
    assert 4 * 20_024_384 <= categories["loss_networks"] <= 4 * 20_024_384 * 1.01
    assert "network_d UNetDiscriminatorSN is not used by model_type SRModel" in run.stderr


def test_readme_a_class_in_a_file(tmp_path, read_profile, own_repository):
    _, script, *arguments = shlex.split(readme_commands()[2])
    run = run_command(script, *arguments, *QUICK, "--no-training", "--cross-check", "off", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "results/profile_results.json")
    # 3 x 64 x 3 x 3 products at each of 256 x 256 pixels.
    assert profile["architecture"]["macs"] == 256 * 256 * 3 * 64 * 9
    assert profile["config"]["config_file"] == str(own_repository)


def module(profile_model, *arguments, **options):
    return profile_model("--module", *arguments, *QUICK, **options)


def test_consent_is_asked_for_and_nothing_is_imported_without_it(profile_model, own_repository, tmp_path):
    own_repository.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{NETWORK}")
    run = module(profile_model, "path/to/file.py:Class", "--kwargs", '{"dim": 4}', "--inputs", "1x3x8x8")
    assert run.returncode == 2
    assert "would import and run file.py:Class(dim=4); pass --trust-config to allow it" in run.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_prediction_imports_the_users_packages_too(profile_model, own_repository, tmp_path, read_profile):
    run = module(
        profile_model, "path/to/file.py:Class", "--kwargs", '{"dim": 4}', "--inputs", "1x3x8x8", "--trust-config",
        "--save-config", "here/ours.json", "--predict-only", training=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert read_profile(tmp_path / "results/profile_results.json")["memory_model"] is not None
    # The saved config names the file from anywhere.
    model = json.loads((tmp_path / "here/ours.json").read_text())["model"]
    assert (model["target"], Path(model["target_folder"])) == ("file.py:Class", own_repository.parent)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("path/to/none.py:Class", "--inputs", "1x3x8x8"),
            "path/to/none.py: --module: cannot be read: No such file",
        ),
        (
            ("path/to/file.py:Clas", "--inputs", "1x3x8x8"),
            "module 'file' has no attribute 'Clas': did you mean Class?",
        ),
        (("path/to/file.py:Class",), "--module: what does it take? For example --inputs 1x3x256x256"),
        (("path/to/file.py:Class", "--inputs", "2x3x8x8"), "the first number is the batch, give 1 here"),
        (("path/to/file.py:Class", "--inputs", "1x3xa"), "'1x3xa': give sizes such as 1x3x256x256"),
        (("path/to/file.py:Class", "--inputs", "1x3x8", "--kwargs", "[1]"), "'[1]': give an object"),
        (("path/to/file.py:Class", "--inputs", "1x3x8", "--kwargs", "{"), "is not JSON"),
        (("path/to/file.py:Class", "--inputs", "1x3x8x8"), "raised TypeError"),
    ],
)
def test_a_wrong_class_is_told_in_one_line(profile_model, own_repository, arguments, told):
    run = module(profile_model, *arguments, "--trust-config")
    assert run.returncode == 2
    assert told in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--checkpoint", "a.pth", "--config", "b.json"),
            "--config and --checkpoint: name the network in one of them",
        ),
        (("--models", "a,a"), "a name is twice in 'a,a'"),
        (("--models", "a", "--save-config", "c.json"), "--save-config writes one config: not with --models"),
        (("--models", "a", "--output", "-"), "--models writes a profile for each network"),
        (("--config", "b.json", "--inputs", "1x3"), "--kwargs and --inputs describe the class of --module"),
        ((), "--config is missing: which network?"),
    ],
)
def test_options_that_contradict_each_other(profile_model, arguments, told):
    run = profile_model(*arguments)
    assert run.returncode == 2
    assert told in run.stderr


@pytest.mark.slow
def test_several_networks_each_have_a_file_of_their_own(profile_model, tmp_path, read_profile):
    run = profile_model("--models", "resnet18,spandrel:Compact,resnet81", "--image-size", "32", *QUICK)
    assert run.returncode == 4  # one of them is none
    assert "timm 1" in run.stderr
    assert "has no model 'resnet81': did you mean" in run.stderr
    # torchvision's documentation says 11,689,512 for ResNet-18.
    assert (
        read_profile(tmp_path / "results/profile_resnet18.json")["architecture"]["total_parameters"]
        == 11_689_512
    )
    # 3 x 64 x 9 + 64, 16 x (64 x 64 x 9 + 64), 17 PReLUs of 64, 64 x 48 x 9 + 48: x4, as published.
    published = 3 * 64 * 9 + 64 + 16 * (64 * 64 * 9 + 64) + 17 * 64 + 64 * 48 * 9 + 48
    compact = read_profile(tmp_path / "results/profile_spandrel_Compact.json")
    assert compact["architecture"]["total_parameters"] == published == 621_424


FRAMEWORKS_NETWORK = """
import torch

class MAN(torch.nn.Module):
    def __init__(self, dim=8, scale=4):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, dim, 3, padding=1)
        self.up = torch.nn.Sequential(torch.nn.Conv2d(dim, 3 * scale**2, 3, padding=1), torch.nn.PixelShuffle(scale))

    def forward(self, x):
        return self.up(self.conv(x))
"""


@pytest.mark.slow
def test_an_option_file_of_an_unknown_network_and_its_class(profile_model, tmp_path, read_profile):
    """The file says how it is trained, the class what it is: the refusal names the command, and it runs."""
    text = (OPTIONS / "trainner_span.yml").read_text()
    (tmp_path / "man.yml").write_text(
        text.replace("type: span\n  norm: false", "type: unheard\n  dim: 16", 1)
    )
    (tmp_path / "man_arch.py").write_text(FRAMEWORKS_NETWORK)
    run = profile_model("--config", "man.yml", *QUICK)
    assert run.returncode == 2
    assert '"unheard" of traiNNer-redux is not a network that is known here' in run.stderr
    assert "add the class that builds it: --module FILE.py:Class --trust-config" in run.stderr
    run = profile_model(
        "--config", "man.yml", "--module", "man_arch.py:MAN", "--trust-config", "--batch-sizes", "1", "--device", "cpu",
        "--predict-only", "--save-config", "ours.json", training=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (
        "network_g unheard: the class man_arch.py:MAN stands for it, with the arguments of network_g"
        in run.stderr
    )
    profile = read_profile(tmp_path / "results/profile_results.json")
    # 3 x 16 x 9 + 16, 16 x 48 x 9 + 48.
    assert profile["architecture"]["total_parameters"] == 448 + 6960
    assert profile["memory_model"]["settings"][0]["patch_size"] == [64, 64]
    assert profile["memory_model"]["loss"] == "1 spatial"
    assert json.loads((tmp_path / "ours.json").read_text())["model"]["kwargs"] == {"dim": 16, "scale": 4}


def test_the_architectures_of_spandrel_are_listed(profile_model):
    run = profile_model("--list-models", "spandrel")
    assert run.returncode == 0
    assert run.stdout.startswith("spandrel ")
    names = [line.split()[0] for line in run.stdout.splitlines()[1:]]
    assert len(names) >= 40
    assert {"ESRGAN", "RealPLKSR", "SwinIR", "HAT"} <= set(names)


def test_training_refuses_what_it_can_only_profile(tmp_path):
    for model, told in (
        ({"net_type": "timm", "name": "resnet18"}, "model.net_type timm: a classifier, trained with labels"),
        (
            {"net_type": "spandrel", "architecture": "HAT"},
            "model.net_type spandrel: trained by its own framework",
        ),
        (
            {"net_type": "restoration", "architecture": "EDSR"},
            "model.net_type restoration: trained by its own framework",
        ),
        (
            {"net_type": "transformers", "class": "BertModel"},
            "model.net_type transformers: trained by its own package",
        ),
    ):
        (tmp_path / "c.json").write_text(json.dumps({"model": model}))
        run = run_command("train.py", "--config", "c.json", cwd=tmp_path)
        assert (run.returncode, run.stderr.count("\n")) == (2, 1)
        assert told in run.stderr
