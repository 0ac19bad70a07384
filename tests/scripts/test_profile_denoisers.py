"""profile_model.py on denoisers: a complete profile, and what a reconstruction costs beside one call."""

import json
import sys

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.batch import FailedBatch, MeasuredBatch, Timing
from swinmr_profiling.profiler.record.reconstruction_cost import GUIDED, add_latency, reconstruction_cost
from swinmr_profiling.profiler.reports.console.steps import print_reconstruction
from swinmr_profiling.profiler.reports.console.terminal import Console
from tests.models.test_denoisers import TINY

QUICK = ("--device", "cpu", "--num-runs", "2", "--warmup", "1")


def config_of(net_type, tmp_path, **sections):
    file = tmp_path / f"{net_type}.json"
    file.write_text(json.dumps({"model": TINY[net_type], **sections}))
    return file


@pytest.mark.slow
@pytest.mark.parametrize("net_type", TINY)
def test_a_complete_profile(net_type, tmp_path, profile_model, read_profile):
    sampling = {"sampling_steps": 20, "guidance": 2.0, "samples_per_slice": 3}
    sections = {
        "evaluation": {"sampling": sampling},
        "training": {"diffusion": {"condition_dropout": 0.1}},
    }
    config = config_of(net_type, tmp_path, **sections)
    options = ("--batch-sizes", "1,4", *QUICK, "--output", "p.json")
    done = profile_model("--config", config, *options, other_counters=True)
    assert done.returncode == 0, done.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["status"] == "complete"
    architecture = profile["architecture"]
    assert architecture["input_shape"] == [1, 2, 16, 16]
    assert architecture["uncounted_operators"] == {}
    checks = {check["counter"]: check for check in architecture["counters"]}
    # fvcore's trace with exact handles is ours to the unit; what thop misses is explained.
    assert checks["fvcore"]["status"] == "ok"
    assert all(check["agrees"] for check in checks.values())
    block = architecture["reconstruction"]
    assert (block["calls_per_step"], block["denoiser_calls"]) == (2, 40)
    assert block["macs"] == 40 * architecture["macs"]
    assert block["flops"] == 2 * block["macs"]
    assert block["latency_ms"] == pytest.approx(40 * profile["single_image"]["timing"]["mean_ms"])
    assert set(profile["batch_profiling"]) == {"1", "4"}
    assert "One reconstruction: 20 steps of ddim x 2 (guidance 2), 40 calls: " in done.stdout
    assert "test.py makes 3 of them for each slice" in done.stdout
    assert "  - One reconstruction: 40 calls, " in done.stdout


def test_a_network_of_one_call_has_no_such_block(tiny_config, tmp_path, profile_model, read_profile):
    done = profile_model(
        "--config", tiny_config(), "--batch-sizes", "1", *QUICK, "--cross-check", "off", "--output", "p.json"
    )
    assert done.returncode == 0, done.stderr
    assert read_profile(tmp_path / "p.json")["architecture"]["reconstruction"] is None
    assert "reconstruction" not in done.stdout


def test_the_cost_by_hand():
    """7 steps without guidance: 7 calls of 11 multiply-adds, 154 operations, 7 x 3 ms."""
    raw = {"model": TINY["unet_denoiser"], "evaluation": {"sampling": {"sampling_steps": 7}}}
    config = config_from_dict(raw)
    block = reconstruction_cost(config, 11)
    assert (block.calls_per_step, block.denoiser_calls, block.macs, block.flops) == (1, 7, 77, 154)
    single_image = MeasuredBatch.model_construct(timing=Timing.model_construct(mean_ms=3.0))
    add_latency(Architecture.model_construct(reconstruction=block), single_image)
    assert block.latency_ms == 21.0


def test_a_guided_step_is_said_to_be_one_call_of_twice_the_batch(capsys):
    """What is measured at batch 4 is not what sampling 4 images with guidance takes."""
    raw = {"model": TINY["unet_denoiser"], "evaluation": {"sampling": {"guidance": 3.0}}}
    guided = config_from_dict({**raw, "training": {"diffusion": {"condition_dropout": 0.1}}})
    plain = config_from_dict({"model": TINY["unet_denoiser"]})
    for config, is_guided in ((guided, True), (plain, False)):
        block = reconstruction_cost(config, 11)
        assert block.what.endswith(GUIDED) == is_guided
        print_reconstruction(Console(sys.stdout), Architecture.model_construct(reconstruction=block))
        assert ("one call of twice the images" in " ".join(capsys.readouterr().out.split())) == is_guided


def test_what_is_not_known_stays_unknown():
    """The count failed, or the single image did."""
    block = reconstruction_cost(config_from_dict({"model": TINY["unet_denoiser"]}), None)
    failed = FailedBatch.model_construct(error="OOM")
    add_latency(Architecture.model_construct(reconstruction=block), failed)
    unknown = ("macs", "flops", "gmacs", "gflops", "latency_ms")
    assert {getattr(block, name) for name in unknown} == {None}
    add_latency(None, None)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({**TINY["unet_denoiser"], "attention_resolutions": [5]}, "no level has features of 5 pixels"),
        ({**TINY["dit_denoiser"], "img_size": 18}, "18 x 18 is not divisible by 4"),
        ({"net_type": "diffusers", "class": "UNet3000"}, "has no class 'UNet3000'"),
    ],
)
def test_a_bad_config_is_one_line(model, said, tmp_path, profile_model):
    (tmp_path / "bad.json").write_text(json.dumps({"model": model}))
    done = profile_model("--config", "bad.json", *QUICK)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "Warning" not in line and line.strip()]
    assert len(lines) == 1
    assert said in lines[0]
