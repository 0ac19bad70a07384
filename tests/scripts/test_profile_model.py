"""The main command, driven as a user drives it."""

import json
import os
import statistics

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward
from tests.conftest import REPOSITORY

# By the facts of the published network; counted independently below by torch's own counter on meta tensors.
FIGURES = {
    "train_config.json": (1_337_761, 101_001_461_760),
    "train_config_small.json": (903_121, 68_065_689_600),
    "train_config_large.json": (11_497_681, 799_872_122_880),
}

PUBLISHED_OPTION_FILE = """
{
  "task": "SwinMR",  // experiment
  "model": "MRI_restoration"
  ,"gpu_ids": [0,1]
  ,"scale": 1
  ,"n_channels": 1
  ,"path": {"root": "experiments", "pretrained_netG": null}
  ,"datasets": {
    "train": {"name": "train", "dataset_type": "ccnpi", "H_size": 96, "dataloader_batch_size": 8
              ,"dataloader_shuffle": true, "dataloader_num_workers": 8, "mask": "G1D30"}
    ,"test": {"name": "test", "dataset_type": "ccnpi", "mask": "G1D30"}
  }
  ,"netG": {
    "net_type": "swinir", "upscale": 1, "in_chans": 1, "img_size": 256, "window_size": 8, "img_range": 1.0
    ,"depths": [6, 6, 6, 6, 6, 6], "embed_dim": 180, "num_heads": [6, 6, 6, 6, 6, 6], "mlp_ratio": 2
    ,"upsampler": null, "resi_connection": "1conv", "init_type": "default"
  }
  ,"train": {
    "manual_seed": 1, "G_lossfn_type": "charbonnier", "alpha": 15, "beta": 0.1, "gamma": 0.0025
    ,"E_decay": 0.999, "G_optimizer_type": "adam", "G_optimizer_lr": 2e-4
    ,"G_scheduler_type": "MultiStepLR", "G_scheduler_milestones": [50000, 70000], "G_scheduler_gamma": 0.5
    ,"checkpoint_test": 5000, "checkpoint_save": 5000, "checkpoint_print": 200
  }
}
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_the_three_configs(name):
    parameters, macs = FIGURES[name]
    built = build_model(load_config(REPOSITORY / "configs" / name).config)
    assert sum(p.numel() for p in built.module.parameters()) == parameters
    assert count_forward(built.module.eval(), built.example_inputs(1)).macs == macs
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        built.module.to("meta")(*built.example_inputs(1, device="meta"))
    assert counter.get_total_flops() == 2 * macs


@pytest.mark.slow
def test_published_option_file_gives_the_large_figures(tmp_path):
    file = tmp_path / "train_swinmr_npi.json"
    file.write_text(PUBLISHED_OPTION_FILE)
    loaded = load_config(file)
    assert loaded.config.data.batch_size == 4  # 8 over two devices
    assert loaded.config.training_patch_hw == (96, 96)
    assert any("option file" in message for message in loaded.messages)
    built = build_model(loaded.config)
    parameters, macs = FIGURES["train_config_large.json"]
    assert sum(p.numel() for p in built.module.parameters()) == parameters
    assert count_forward(built.module.eval(), built.example_inputs(1)).macs == macs


def test_complete_profile_of_a_tiny_network(profile_model, tiny_config, tmp_path, read_profile):
    options = ("--batch-sizes", "3,1,2", "--num-runs", "7", "--warmup", "2")
    run = profile_model("--config", tiny_config(), *options, training=True, other_counters=True)
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "results/profile_results.json")
    assert profile["status"] == "complete"
    assert list(profile["batch_profiling"]) == ["1", "2", "3"]
    first = profile["batch_profiling"]["1"]
    # One measurement under both names; what is predicted of training stands with the batch size alone.
    assert profile["single_image"] == {name: value for name, value in first.items() if name != "training"}
    assert first["training"]["source"] == "predicted"
    for size, block in profile["batch_profiling"].items():
        timing, memory = block["timing"], block["memory"]
        assert block["input_shape"] == [int(size), 1, 32, 32]
        assert block["attention"] == "blocked"  # the policy's way for inference on a CPU
        assert len(timing["samples_ms"]) == timing["num_runs"] == 7
        assert len(timing["warmup_ms"]) == timing["warmup_runs"] == 2
        assert timing["stop_reason"] == "requested"
        assert timing["mean_ms"] == pytest.approx(statistics.fmean(timing["samples_ms"]))
        assert timing["std_ms"] == pytest.approx(statistics.stdev(timing["samples_ms"]))
        assert timing["fps"] == pytest.approx(int(size) * 1000 / timing["mean_ms"])
        # Seven runs: the interval [min, max] covers the median with 1 - 2/2^7 = 98.4 %, the next inner one
        # with 1 - 2 (1 + 7)/2^7 = 87.5 % only.
        assert timing["ci95_median_ms"] == [timing["min_ms"], timing["max_ms"]]
        assert memory["peak_mb"] == memory["peak_bytes"] / 2**20
        assert memory["peak_bytes"] >= memory["before_bytes"] > 100 * 2**20  # torch alone is more
        assert memory["peak_bytes"] >= memory["after_bytes"]
        assert min(memory["cold_peak_bytes"], memory["warm_peak_bytes"]) > 100 * 2**20
        assert memory["noise_bytes"] == abs(memory["after_bytes"] - memory["before_bytes"])
        assert memory["activation_within_noise"] is (memory["activation_bytes"] <= memory["noise_bytes"])
        said = f"Activation memory: {memory['activation_mb']:,.2f} MB"
        if memory["activation_within_noise"]:
            said += f" (within the noise of {memory['noise_bytes'] / 2**20:,.2f} MB)"
        assert size == "1" or f"{said}\n" in run.stdout
        assert "resident memory" in memory["kind"]
    architecture = profile["architecture"]
    # 12 channels, one group of two blocks, by hand: first convolution 9 x 12 + 12, embedding norm 24,
    # per block: norms 48, bias table 225 x 2, qkv 12 x 36 + 36, proj 156, mlp 12 x 24 + 24 + 24 x 12 + 12;
    # group convolution 9 x 144 + 12, final norm 24, after body the same again, last 9 x 12 + 1.
    block = 48 + 450 + 468 + 156 + 312 + 300
    convolution = 9 * 144 + 12
    assert architecture["total_parameters"] == 120 + 24 + 2 * block + convolution + 24 + convolution + 109
    # MACs per pixel: convolutions 108 + 1296 + 1296 + 108, per block qkv 432, proj 144, mlp 576 and attention
    # products 2 x 64 tokens x 12 channels.
    per_pixel = 108 + 1296 + 1296 + 108 + 2 * (432 + 144 + 576 + 2 * 64 * 12)
    assert architecture["macs"] == 32 * 32 * per_pixel
    assert architecture["flops"] == 2 * architecture["macs"]
    assert architecture["gflops"] == architecture["flops"] / 1e9
    assert sum(architecture["by_kind"].values()) == architecture["macs"]
    assert sum(architecture["by_operator"].values()) == architecture["macs"]
    assert architecture["uncounted_operators"] == {}
    assert sum(architecture["parameters_by_module"].values()) == architecture["total_parameters"]
    assert profile["environment"]["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert profile["environment"]["command_line"].startswith("profile_model.py --config")
    assert profile["recommendation"]["inference"]["batch_size"] in (1, 2, 3)
    assert "inference only" in profile["recommendation"]["inference"]["purpose"]
    # The answer stands before the steps that it comes from.
    assert run.stdout.index("\nANSWER:\n") < run.stdout.index("[1/5] Creating model")
    for words in (
        "MODEL PROFILING",
        "latency     measured below",
        "[1/5] Creating model",
        "[2/5] Analyzing model architecture",
        "[3/5] Measuring FLOPs",
        "[4/5] Profiling single image inference",
        "[5/5] Profiling batch sizes",
        "Testing batch size: 3",
        "PROFILING SUMMARY",
        "Batch Size Recommendations:",
        "results/profile_results.json",
        f"Total parameters: {architecture['total_parameters']:,}",
        f"FLOPs: {architecture['flops']:,}",
        "This is for inference only",
    ):
        assert words in run.stdout


def test_one_run_has_no_deviation(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model(
        "--config",
        tiny_config(),
        "--batch-sizes",
        "1",
        "--num-runs",
        "1",
        "--warmup",
        "0",
        "--output",
        "a/b.json",
    )
    assert run.returncode == 0, run.stderr
    timing = read_profile(tmp_path / "a/b.json")["single_image"]["timing"]
    # One sample has no spread, and is not a percentile but the median.
    unknown = ("std_ms", "iqr_ms", "p90_ms", "p95_ms", "p99_ms", "ci95_median_ms")
    assert [timing[name] for name in unknown] == [None] * len(unknown)
    assert timing["warmup_runs"] == 0
    assert "(n=1)" in run.stdout


def test_standard_output_is_pure_json(profile_model, custom_config, read_profile):
    source = """
import torch
class Network(torch.nn.Module):
    def forward(self, x):
        print("a network that talks")
        return {"image": (x, x.mean())}
"""
    config = custom_config(source)
    run = profile_model(
        "--config", config, "--trust-config", "--batch-sizes", "1", "--num-runs", "2", "--output", "-"
    )
    assert run.returncode == 0, run.stderr
    profile = read_profile(run.stdout)
    assert profile["config"]["model"] == "custom"
    assert profile["architecture"]["total_parameters"] == 0
    assert profile["architecture"]["flops_per_parameter"] is None
    assert "PROFILING SUMMARY" in run.stderr
    assert "a network that talks" in run.stderr


@pytest.mark.slow
def test_timm_network(profile_model, tmp_path, read_profile):
    config = tmp_path / "timm.json"
    config.write_text(json.dumps({"model": {"net_type": "timm", "name": "resnet18", "img_size": 64}}))
    run = profile_model("--config", config, "--batch-sizes", "1", "--num-runs", "1", "--output", "p.json")
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["single_image"]["input_shape"] == [1, 3, 64, 64]
    # torchvision states 11,689,512 parameters for ResNet-18. Its MACs at 224 are 1,814,073,344 (1.814 G); all but
    # the last layer (512 x 1000) scale with the pixels.
    assert profile["architecture"]["total_parameters"] == 11_689_512
    assert profile["architecture"]["macs"] == (1_814_073_344 - 512_000) * 64**2 // 224**2 + 512_000


@pytest.mark.slow
def test_image_size_precision_and_layout(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model(
        *("--config", tiny_config(), "--image-size", "24x40", "--precision", "bf16", "--channels-last"),
        *("--batch-sizes", "2", "--num-runs", "1", "--threads", "1", "--seed", "7", "--output", "p.json"),
    )
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["batch_profiling"]["2"]["input_shape"] == [2, 1, 24, 40]
    assert profile["config"]["image_size"] == [24, 40]
    assert profile["config"]["precision"] == "bf16"
    assert profile["environment"]["cpu"]["threads"] == 1


def test_default_sweep_on_a_cpu_leaves_out_what_takes_minutes(
    profile_model, custom_config, tmp_path, read_profile
):
    """Each image sleeps for 16 s of a pretended clock: 1, 2 and 4 fit into two minutes, 8 and 16 do not."""
    source = """
import time, torch
clock = time.perf_counter_ns
slept = 0
time.perf_counter_ns = lambda: clock() + slept
monotonic = time.monotonic
class Network(torch.nn.Module):
    def forward(self, x):
        global slept
        slept += 16_000_000_000 * x.shape[0]
        return x
"""
    run = profile_model("--config", custom_config(source), "--trust-config", "--output", "p.json")
    assert run.returncode == 0, run.stderr
    blocks = read_profile(tmp_path / "p.json")["batch_profiling"]
    assert list(blocks) == ["1", "2", "4", "8", "16"]
    # The sweep's own clock is the command's, which did not sleep: a size is left out when one run of it alone
    # passes two minutes.
    assert "timing" in blocks["4"]
    assert {blocks[size]["error"] for size in ("8", "16")} == {"skipped"}
    assert "--batch-sizes 8 measures it" in blocks["8"]["detail"]
    assert blocks["8"]["expected"] == {
        "source": "extrapolated",
        "from_batch": 4,
        "latency_ms": pytest.approx(128_000, rel=0.01),
        "activation_bytes": blocks["8"]["expected"]["activation_bytes"],
    }


def test_named_sizes_are_always_measured(profile_model, custom_config, tmp_path, read_profile):
    source = """
import time, torch
clock = time.perf_counter_ns
slept = 0
time.perf_counter_ns = lambda: clock() + slept
class Network(torch.nn.Module):
    def forward(self, x):
        global slept
        slept += 100_000_000_000 * x.shape[0]
        return x
"""
    config = custom_config(source)
    run = profile_model("--config", config, "--trust-config", "--batch-sizes", "1,8", "--output", "p.json")
    assert run.returncode == 0, run.stderr
    block = read_profile(tmp_path / "p.json")["batch_profiling"]["8"]
    assert block["num_runs"] == 1
    assert block["timing"]["warmup_runs"] == 0


def test_list_models(profile_model):
    # A line each in a pipe; a width that somebody set (a pytest of several processes does) is kept.
    anywhere = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    run = profile_model("--list-models", env=anywhere)
    assert run.returncode == 0
    kinds = [
        "swinir",
        "timm",
        "custom",
        "unet_denoiser",
        "dit_denoiser",
        "diffusers",
        "restoration",
        "spandrel",
        "transformers",
    ]
    assert sorted(line.split()[0] for line in run.stdout.splitlines()) == sorted(kinds)
