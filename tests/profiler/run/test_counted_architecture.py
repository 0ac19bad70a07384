"""What the main command says of a training step and, with --by-module, of each module."""

import json

import pytest

from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.reports.console.counted import _size
from swinmr_profiling.profiler.reports.views.cards import cards_of
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.profiler.reports.views.words import in_unit, unit_of
from tests.conftest import TINY_SWINIR, run_command

QUICK = ("--device", "cpu", "--num-runs", "2", "--warmup", "0", "--batch-sizes", "1", "--cross-check", "off")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counted")
    config = {
        "model": TINY_SWINIR,
        "data": {"use_patches": False, "batch_size": 2},
        "training": {"accumulate": 2},
    }
    file = folder / "tiny.json"
    file.write_text(json.dumps(config))
    output = folder / "profile.json"
    options = (*QUICK, "--by-module", "--depth", "1")
    done = run_command("scripts/profile_model.py", "--config", file, "--output", output, *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text()), done.stdout


def test_the_training_step_is_counted_for_a_sample_and_for_an_optimizer_step(profiled):
    profile, text = profiled
    forward, block = profile["architecture"]["macs"], profile["architecture"]["training_macs"]
    sample, step = block["per_sample"], block["per_step"]
    # Whole images are trained on, so that the forward is the one that is counted above.
    assert sample["forward_macs"] == forward
    assert forward < sample["backward_macs"] < 2 * forward
    assert step["samples"] == 4
    assert step["macs"] == 4 * sample["macs"]
    assert f"Training MACs per sample: {sample['macs']:,.0f} (forward {forward:,}" in text
    assert f"Training MACs per optimizer step of 4: {step['macs']:,}" in text


def test_each_module_has_its_time_and_speed(profiled):
    profile, text = profiled
    block = profile["architecture"]["module_costs"]
    by_path = {module["path"]: module for module in block["modules"]}
    assert by_path[""]["share"] == 1
    assert by_path["conv_first"]["macs_per_second"] > 0
    assert by_path["conv_first"]["calls"] == 1
    assert 0 <= block["hook_share"] < 1
    # One level, as --depth says.
    assert "conv_first (Conv2d): " in text.split("By module, batch 1")[1]
    assert "residual_group" not in text.split("By module, batch 1")[1]


def test_results_of_small_modules_are_told_in_bytes():
    assert (_size(64), _size(3 * 2**19), _size(0)) == ("64 bytes", "1.50 MB", "0.00 MB")


def test_reports_have_the_training_step(profiled):
    profile, _ = profiled
    card = next(
        card
        for card in cards_of(view_of(parse_profile(json.dumps(profile), "profile.json")))
        if card.label == "Training MACs per sample"
    )
    assert card.source == "counted"
    assert "backward" in card.detail
    assert "optimizer step of 4" in card.detail


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (101_001_461_760, "GMACs: 101.00"),
        (10_000_000, "GMACs: 0.01"),
        (4_260_000, "MMACs: 4.26"),
        (9_999, "kMACs: 10.00"),
        (640, "kMACs: 0.64"),
        (9, "MACs: 9"),
        (0, "GMACs: 0.00"),
    ],
)
def test_small_networks_show_their_figures(count, text):
    assert in_unit(count, "MACs") == text


def test_units_fall_by_a_thousand():
    assert [unit_of(n)[0] for n in (1e12, 1e6, 1e3, 1)] == ["G", "M", "k", ""]
