"""profile_model.py predicts the memory of training: the real command, from a config to a recommendation per card."""

import json
import math
import os
import sys

import pytest

OFF = ("--device", "cpu", "--cross-check", "off", "--output", "p.json")
GIB = 2**30
# The size of the input decides what runs: nothing without values can say whether a sum is positive.
UNTRACEABLE = """
import torch
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 3, padding=1)
    def forward(self, x):
        if x.sum() > 0:
            return self.layer(x)
        return x
"""


@pytest.mark.slow
def test_predict_only_measures_nothing_and_recommends_for_every_card(
    profile_model, tiny_config, tmp_path, read_profile
):
    cards = ("--gpu", "RTX 3090", "--gpu-memory", "80GiB", "--reserved", "1GiB", "--headroom", "20%")
    options = ("--predict-only", *cards, "--target-batch", "8", "--verbose", *OFF)
    run = profile_model("--config", tiny_config(), *options)
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["batch_profiling"] == {}
    assert profile["single_image"] is None
    model = profile["memory_model"]
    # One patch (the whole image), fp32 and bf16, three ways of checkpointing.
    assert len(model["settings"]) == 6
    own = model["settings"][0]
    assert (own["is_config"], own["aligned"], own["checked"]) == (True, True, True)
    assert own["traced_batches"] == [1, 2, 3, 5]
    # Weights and biases of the layers, 4 bytes each, and the image mean: a buffer of one number.
    parameters = profile["architecture"]["total_parameters"]
    assert own["terms"]["parameters"] == {"fixed_bytes": 4 * parameters + 4, "bytes_per_sample": 0}
    assert own["terms"]["ema"] == own["terms"]["parameters"]
    assert own["terms"]["optimizer_state"]["fixed_bytes"] == 2 * 4 * parameters  # Adam's two
    assert own["terms"]["inputs"]["bytes_per_sample"] == 2 * 32 * 32 * 4  # image and target
    card, size = profile["recommendation"]["training"]
    assert (size["budget"]["name"], size["budget"]["total_bytes"]) == ("80GiB GPU", 80 * GIB)
    assert size["budget"]["usable_bytes"] == 79 * GIB * 4 // 5
    for entry in (card, size):
        assert (entry["batch_size"], entry["accumulate"], entry["global_batch"]) == (8, 1, 8)
        assert (entry["source"], entry["verified"]) == ("predicted", False)
        assert entry["needed_bytes"] <= entry["budget"]["usable_bytes"]
        assert len(entry["levers"]) == 6
    assert "not yet verified on a GPU" in run.stdout
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]} trains as it predicted" in " ".join(
        run.stdout.split()
    )
    # Nothing but a path may be wider than a terminal.
    assert all(len(line) <= 80 for line in run.stdout.splitlines() if str(tmp_path) not in line)


@pytest.mark.slow
def test_resume_predicts_again_where_other_settings_are_asked_for(
    profile_model, tiny_config, tmp_path, read_profile
):
    config = tiny_config()
    options = ("--config", config, "--batch-sizes", "1", "--num-runs", "1", "--warmup", "0", *OFF)
    assert profile_model(*options, training=True).returncode == 0
    before = read_profile(tmp_path / "p.json")
    assert len(before["memory_model"]["settings"]) == 1
    run = profile_model(*options, "--resume", "--gpu", "RTX 3090", training=True)
    assert run.returncode == 0, run.stderr
    after = read_profile(tmp_path / "p.json")
    assert len(after["memory_model"]["settings"]) == 6
    (entry,) = after["recommendation"]["training"]
    assert len(entry["levers"]) == 6
    # What was measured is not measured again, and what was predicted is the same.
    assert after["batch_profiling"]["1"]["timing"] == before["batch_profiling"]["1"]["timing"]
    own = [model["settings"][0]["sizes"]["1"] for model in (before["memory_model"], after["memory_model"])]
    assert own[0] == own[1]
    # One interval for each quantity, each around its own figure.
    training = after["batch_profiling"]["1"]["training"]
    live, reserved = training["live_bytes"], training["peak_reserved_bytes"]
    # A network with attention in fp32: -0.4 % to +1.58 % and 10.9 MiB of its convolutions, and 1 % more to both sides
    # of what is reserved.
    more = round(10.9 * 2**20)
    assert training["live_interval_bytes"] == [math.floor(live * 0.996), math.ceil(live * 1.0158) + more]
    assert training["reserved_interval_bytes"] == [
        math.floor(reserved * 0.986),
        math.ceil(reserved * 1.0258) + more,
    ]


@pytest.mark.slow
def test_nothing_fits_a_card_that_holds_no_more_than_the_context(
    profile_model, tiny_config, tmp_path, read_profile
):
    run = profile_model("--config", tiny_config(), "--predict-only", "--gpu-memory", "256MiB", *OFF)
    assert run.returncode == 3
    assert "Traceback" not in run.stderr
    (entry,) = read_profile(tmp_path / "p.json")["recommendation"]["training"]
    assert entry["batch_size"] is None
    assert entry["failure"] == "nothing_fits"


@pytest.mark.slow
def test_a_network_that_cannot_be_traced_is_said_and_measured_all_the_same(
    profile_model, custom_config, tmp_path, read_profile
):
    run = profile_model(
        *("--config", custom_config(UNTRACEABLE), "--trust-config", "--batch-sizes", "1"),
        *("--num-runs", "1", "--warmup", "0", *OFF),
        training=True,
    )
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile["memory_model"] is None
    assert [warning["code"] for warning in profile["warnings"]].count("memory_not_predicted") == 1
    assert "the memory of training is not predicted" in run.stdout
    assert "timing" in profile["batch_profiling"]["1"]
    assert "training" not in profile["batch_profiling"]["1"]
    alone = profile_model(
        *("--config", tmp_path / "custom.json", "--trust-config", "--predict-only", *OFF[:-1], "alone.json")
    )
    assert alone.returncode == 4
    assert read_profile(tmp_path / "alone.json")["status"] == "partial"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpu", "A100"), "names more than one card"),
        (("--gpu", "RTX 9999 Ultra"), "not a card that is known"),
        (("--gpu-memory", "24"), "not an amount of memory"),
        (("--headroom", "100%"), "below 100 %"),
        (("--target-batch", "0"), "at least 1"),
        (("--predict-only", "--no-training"), "leave nothing to do"),
    ],
)
def test_bad_options_end_in_one_line(profile_model, tiny_config, options, words):
    run = profile_model("--config", tiny_config(), *options)
    assert run.returncode == 2
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_the_known_cards_are_listed(profile_model):
    run = profile_model("--list-gpus")
    assert run.returncode == 0
    assert any(line.startswith("GeForce RTX 3090 ") and "8.6" in line for line in run.stdout.splitlines())


@pytest.mark.slow
def test_a_damaged_cache_of_traces_costs_a_line_each_and_no_prediction(profile_model, tiny_config, tmp_path):
    """And --no-cache neither reads nor writes it; the prediction is the same each time."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    folder = tmp_path / "cache/swinmr-profiling/traces"

    def predicted(*options):
        run = profile_model(
            "--config", tiny_config(), "--predict-only", "--gpu", "RTX 4090", "--batch-sizes", "1", *options,
            env=environment,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        profile = json.loads((tmp_path / "results/profile_results.json").read_text())
        return run, profile["memory_model"]["settings"]

    _, alone = predicted("--no-cache")
    assert not folder.exists()
    _, first = predicted()
    files = sorted(folder.glob("*.npz"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    run, again = predicted()
    assert "Traceback" not in run.stderr
    told = [line for line in run.stderr.splitlines() if "holds no trace" in line]
    assert {line.split()[1] for line in told} == {str(file) for file in files}
    assert first == again == alone
    before = {file: file.stat().st_mtime_ns for file in files}
    predicted("--no-cache")
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.npz")} == before
