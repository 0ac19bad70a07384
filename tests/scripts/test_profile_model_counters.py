"""The main command's counts: other counters asked and explained, missing counters, unknown operators."""

import pytest

from tests.conftest import run_command
from tests.without_packages import command_without

QUICK = ("--batch-sizes", "1", "--num-runs", "1", "--warmup", "0", "--output", "p.json")

UNKNOWN_OPERATOR = """
import torch

@torch.library.custom_op("own::fold", mutates_args=())
def fold(x: torch.Tensor) -> torch.Tensor:
    return x @ x.transpose(-1, -2)

@fold.register_fake
def _(x):
    return x.new_empty(*x.shape[:-1], x.shape[-2])

class Network(torch.nn.Module):
    def forward(self, x):
        return fold(x) + fold(x)
"""

INTEGER_PRODUCT = """
import torch

@torch.library.custom_op("own::product", mutates_args=())
def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.int() @ weight.int()

@product.register_fake
def _(x, weight):
    return x.new_empty(x.shape[0], weight.shape[1], dtype=torch.int32)

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.ones(8, 8, dtype=torch.int8))

    def forward(self, x):
        return product(x.flatten(0, -2).to(torch.int8), self.weight)
"""

COMPLEX_CONVOLUTION = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1, dtype=torch.complex64)

    def forward(self, x):
        return self.conv(torch.complex(x, -x)).abs()
"""

OPTIMIZED_SCRIPT = """
import torch

def Network():
    layers = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU()).eval()
    return torch.nn.Sequential(torch.jit.optimize_for_inference(torch.jit.script(layers)))
"""


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch, tmp_path):
    """No answer of an earlier run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
def test_differences_are_explained_to_the_unit(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model("--config", tiny_config(model={"img_size": 128}), *QUICK, other_counters=True)
    assert run.returncode == 0, run.stderr
    architecture = read_profile(tmp_path / "p.json")["architecture"]
    fvcore, thop = architecture["counters"]
    assert (fvcore["counter"], thop["counter"]) == ("fvcore", "thop")
    # By hand, per pixel (see test_profile_model.py): 7920 MACs in all, of which 2 x 2 x 64 x 12 attention
    # products; LayerNorm over 12 channels six times. The counters are asked at 64 x 64.
    pixels = 64 * 64
    per_pixel = 108 + 1296 + 1296 + 108 + 2 * (432 + 144 + 576 + 2 * 64 * 12)
    for check in (fvcore, thop):
        assert check["status"] == "ok"
        assert check["input_shapes"] == [[1, 1, 64, 64]]
        assert check["ours"] == pixels * per_pixel
        assert check["figure"] - check["ours"] == check["difference"]
        assert sum(part["macs"] for part in check["parts"]) == check["difference"]
        assert check["agrees"] is True
    # fvcore adds 5 per element of a LayerNorm; thop 4, and does not see attention products.
    assert fvcore["difference"] == 5 * 6 * 12 * pixels
    assert thop["difference"] == 4 * 6 * 12 * pixels - 2 * 2 * 64 * 12 * pixels
    assert thop["inexact"] is True
    assert f"ours {pixels * per_pixel:,}" in run.stdout
    assert not [w for w in read_profile(tmp_path / "p.json")["warnings"] if w["code"] == "counters_disagree"]
    # The next run is told the same by what was kept, and says so.
    again = profile_model("--config", tmp_path / "tiny.json", *QUICK, other_counters=True)
    assert again.returncode == 0, again.stderr
    kept = read_profile(tmp_path / "p.json")["architecture"]["counters"]
    assert [check.pop("from_earlier_run") for check in kept] == [True, True]
    assert kept == [
        {name: value for name, value in check.items() if name != "from_earlier_run"}
        for check in (fvcore, thop)
    ]
    assert again.stdout.count("asked in an earlier run") == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("missing", [["fvcore"], ["thop"], ["fvcore", "thop"]])
def test_counters_that_are_not_installed(tiny_config, tmp_path, read_profile, missing):
    command = command_without(tmp_path, "scripts/profile_model.py", *missing)
    run = run_command(command, "--config", tiny_config(), *QUICK, "--no-training", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["status"] == "complete"
    assert profile["architecture"]["macs"] > 0
    for check in profile["architecture"]["counters"]:
        if check["counter"] in missing:
            assert check["status"] == "missing"
            assert check["figure"] is None
            assert f"{check['counter']} gives no figure: missing" in run.stdout
        else:
            assert check["status"] == "ok"


def test_cross_check_off(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model("--config", tiny_config(), *QUICK, "--cross-check", "off")
    assert run.returncode == 0, run.stderr
    assert read_profile(tmp_path / "p.json")["architecture"]["counters"] == []
    assert "no other counter was asked" in run.stdout


def test_a_counter_to_quote(profile_model, tiny_config, tmp_path, read_profile):
    config = tiny_config(model={"img_size": 128})
    run = profile_model("--config", config, *QUICK, "--cross-check", "off", "--flops-counter", "thop")
    assert run.returncode == 0, run.stderr
    quoted = read_profile(tmp_path / "p.json")["architecture"]["quoted_counter"]
    assert quoted["counter"] == "thop"
    assert quoted["size"] == "full"
    assert quoted["input_shapes"] == [[1, 1, 128, 128]]
    assert quoted["convention"] in " ".join(run.stdout.split())  # its lines are wrapped
    assert f"{quoted['figure']:,.0f}" in run.stdout


@pytest.mark.slow
def test_unknown_operator_warns_and_fails_the_gate(profile_model, custom_config, tmp_path, read_profile):
    config = custom_config(UNKNOWN_OPERATOR, input_shapes=((4, 8),))
    arguments = ("--config", config, "--trust-config", *QUICK, "--cross-check", "off")
    run = profile_model(*arguments)
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    [(name, calls)] = profile["architecture"]["uncounted_operators"].items()
    assert "own" in name
    assert "fold" in name
    assert calls == 2
    assert [w["code"] for w in profile["warnings"] if "uncounted" in w["code"]] == ["uncounted_operators"]
    assert " ".join(run.stdout.split()).count("without a formula") == 1
    strict = profile_model(*arguments, "--strict-flops")
    assert strict.returncode == 5
    assert "--strict-flops" in strict.stderr
    assert read_profile(tmp_path / "p.json")["status"] == "complete"


def test_a_product_of_integers_that_nobody_knows_fails_the_gate(
    profile_model, custom_config, tmp_path, read_profile
):
    config = custom_config(INTEGER_PRODUCT, input_shapes=((4, 8),))
    run = profile_model("--config", config, "--trust-config", *QUICK, "--strict-flops")
    assert run.returncode == 5
    assert read_profile(tmp_path / "p.json")["architecture"]["uncounted_operators"] == {"own::product": 1}
    assert "own::product (1 calls)" in " ".join(run.stdout.split())


def test_both_figures_of_complex_numbers(profile_model, custom_config, tmp_path, read_profile):
    config = custom_config(COMPLEX_CONVOLUTION, input_shapes=((2, 16, 16),))
    run = profile_model("--config", config, "--trust-config", *QUICK, "--strict-flops", other_counters=True)
    assert run.returncode == 0, run.stderr
    architecture = read_profile(tmp_path / "p.json")["architecture"]
    assert (architecture["macs"], architecture["flops"]) == (73_728, 2 * 73_728)
    assert architecture["macs_complex_as_one"] == 18_432
    assert architecture["by_operator_complex_as_one"] == {"aten::convolution": 18_432}
    assert architecture["by_module"]["macs_complex_as_one"] == 18_432
    printed = " ".join(run.stdout.split())
    assert "MACs: 73,728 (multiply-adds" in printed
    assert "a complex multiply-add counts as four real ones" in printed
    assert "with one for each the MACs are 18,432" in printed
    fvcore, thop = architecture["counters"]
    assert (fvcore["figure"], fvcore["ours"], fvcore["agrees"]) == (3 * 18_432, 73_728, True)
    assert (thop["figure"], thop["ours"], thop["agrees"]) == (18_432, 73_728, True)
    for check in (fvcore, thop):
        (part,) = check["parts"]
        assert part["macs"] == check["figure"] - check["ours"]
        assert part["why"].startswith("complex numbers: ours counts four per multiply-add")


def test_an_optimized_script_is_refused_in_one_line(profile_model, custom_config, tmp_path, read_profile):
    config = custom_config(OPTIMIZED_SCRIPT, input_shapes=((2, 16, 16),))
    run = profile_model("--config", config, "--trust-config", *QUICK, "--strict-flops")
    assert run.returncode == 4  # partial: measured, but not counted
    architecture = read_profile(tmp_path / "p.json")["architecture"]
    assert architecture["macs"] is None
    assert (
        "module 0 (Sequential) is a script after torch.jit.optimize_for_inference"
        in architecture["count_error"]
    )


def test_strict_count_of_a_known_network(profile_model, tiny_config):
    run = profile_model(
        "--config", tiny_config(), *QUICK, "--cross-check", "off", "--strict-flops", "--depth", "2"
    )
    assert run.returncode == 0, run.stderr
    assert "layers (ModuleList)" in run.stdout
    assert "conv_last (Conv2d): 110,592 MACs, 109 parameters" in run.stdout  # 9 x 12 x 32 x 32


def test_lpips_cost(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model(
        "--config", tiny_config(model={"img_size": 64}), *QUICK, "--cross-check", "off", "--with-lpips"
    )
    assert run.returncode == 0, run.stderr
    block = read_profile(tmp_path / "p.json")["perceptual_metric"]
    # AlexNet's five convolutions by hand at 64 x 64 (maps of 15, 7 and 3), once per image of the pair, and the
    # five 1 x 1 heads on the difference.
    backbone = 15**2 * 64 * 3 * 121 + 7**2 * 192 * 64 * 25
    backbone += 3**2 * (384 * 192 * 9 + 256 * 384 * 9 + 256 * 256 * 9)
    heads = 15**2 * 64 + 7**2 * 192 + 3**2 * (384 + 256 + 256)
    assert block["macs"] == 2 * backbone + heads
    assert block["flops"] == 2 * block["macs"]
    assert "random weights" in block["backbone"]


def test_lpips_of_too_small_an_image_is_a_warning(profile_model, tiny_config, tmp_path, read_profile):
    config = tiny_config(model={"img_size": 16})
    run = profile_model("--config", config, *QUICK, "--cross-check", "off", "--with-lpips")
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["perceptual_metric"] is None
    assert "lpips_not_measured" in [w["code"] for w in profile["warnings"]]


@pytest.mark.slow
def test_precision_of_the_config(profile_model, tiny_config, tmp_path, read_profile):
    config = tiny_config(system={"mixed_precision": "bf16", "seed": 5, "threads": 1})
    run = profile_model("--config", config, *QUICK, "--cross-check", "off")
    assert run.returncode == 0, run.stderr
    options = read_profile(tmp_path / "p.json")["config"]
    assert (options["precision"], options["seed"], options["threads"]) == ("bf16", 5, 1)
    assert (
        profile_model("--config", config, *QUICK, "--precision", "fp32", "--cross-check", "off").returncode
        == 0
    )
    assert read_profile(tmp_path / "p.json")["config"]["precision"] == "fp32"
