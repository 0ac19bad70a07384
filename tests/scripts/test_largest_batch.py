"""The largest batch as the commands give it: by the rule, for any budget, in a run, resumed, and from a saved file."""

import json

import pytest

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.prediction.replay import live_peak, replay
from swinmr_profiling.profiler.prediction.trace_family import training_family
from swinmr_profiling.scripts import profile_model, recommend_batch_size
from tests.conftest import REPOSITORY, TINY_SWINIR
from tests.profiler.batch_size.test_rule import by_its_words

OFF = ("--device", "cpu", "--cross-check", "off", "--predict-only")
SWINMR = {
    "model": {
        "net_type": "swinmr",
        "img_size": 64,
        "window_size": 8,
        "depths": [2, 2],
        "num_heads": [4, 4],
        "embed_dim": 32,
    },
    "data": {"batch_size": 4, "patch_size": 32},
}
TINY = {"model": TINY_SWINIR, "data": {"use_patches": False}}


def ran(command, *arguments):
    """Runs a command in this process."""
    assert command.main([str(argument) for argument in arguments]) == 0


def answers(file):
    """Of each budget: what is recommended and why, and what every lever allows; without the command's own words."""
    return json.loads(file.read_text())["recommendation"]["training"]


def batch_by_every_replay(config_file, entry):
    """The rule in its own words over every batch whose live bytes leave it possible, each replayed as a whole."""
    config = load_config(config_file).config
    family, _ = training_family(build_model(config), config, "test", check=True)
    budget = entry["budget"]
    left = budget["usable_bytes"] - budget["context_bytes"] - budget["workspace_bytes"]
    fitting, batch = set(), 1
    while live_peak(family.at(batch))[0] <= left:
        if replay(family.at(batch)).peak_reserved_bytes <= left:
            fitting.add(batch)
        batch += 1
    return by_its_words(fitting, batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "card", "largest"),
    [
        (SWINMR, ("--gpu", "RTX 3090"), 2368),  # one batch less than the first that did not fit: 2049
        ("train_config_small.json", ("--gpu-memory", "106.6GiB"), 137),  # 135
        (TINY, ("--gpu-memory", "2.5GiB"), 640),  # 601
    ],
    ids=["swinmr", "small", "tiny"],
)
def test_the_largest_batch_is_the_rules(tmp_path, content, card, largest):
    file = REPOSITORY / "configs" / content if isinstance(content, str) else tmp_path / "own.json"
    if not isinstance(content, str):
        file.write_text(json.dumps(content))
    out = tmp_path / "p.json"
    ran(profile_model, "--config", file, "--output", out, *card, *OFF)
    (entry,) = answers(out)
    assert entry["batch_size"] == entry["largest_batch"] == largest == batch_by_every_replay(file, entry)
    assert (entry["source"], entry["verified"]) == ("predicted", False)
    last = largest + max(16, -(-largest // 100))
    assert f"{largest} fits" in entry["reason"]
    assert f"none of {largest + 1} to {last} fits: {largest + 1} would need" in entry["reason"]


def told(text):
    """What is printed of each budget."""
    return text[text.index("Training batch size:") : text.index("Predicted largest batch")]


@pytest.mark.slow
def test_a_run_a_resumed_run_and_a_saved_profile_give_one_answer(tmp_path, capsys):
    config, fresh, other = (tmp_path / name for name in ("tiny.json", "fresh.json", "other.json"))
    config.write_text(json.dumps(TINY))
    cards = [word for size in (0.8, 1.3, 2.5, 3.7) for word in ("--gpu-memory", f"{size}GiB")]
    cards += ["--gpu", "T4", "--headroom", "17%"]
    ran(profile_model, "--config", config, "--output", fresh, *cards, *OFF, "--verbose")
    by_the_run = told(capsys.readouterr().out)
    assert len({entry["batch_size"] for entry in answers(fresh)}) == 5
    # A profile that was made for other cards, without the levers' settings and with another headroom.
    ran(profile_model, "--config", config, "--output", other, *OFF)
    capsys.readouterr()
    ran(recommend_batch_size, other, *cards, "--verbose")
    assert told(capsys.readouterr().out) == by_the_run
    ran(profile_model, "--config", config, "--output", other, "--resume", *cards, *OFF)
    assert answers(other) == answers(fresh)


@pytest.mark.slow
def test_resuming_a_profile_of_an_earlier_version_predicts_again(tmp_path):
    config, out = tmp_path / "tiny.json", tmp_path / "p.json"
    config.write_text(json.dumps(TINY))
    options = ("--config", config, "--output", out, "--gpu-memory", "2.5GiB", *OFF)
    ran(profile_model, *options)
    fresh = answers(out)
    old = json.loads(out.read_text())
    old["schema_version"] = 1
    for setting in old["memory_model"]["settings"]:
        del setting["allocations"]
    out.write_text(json.dumps(old))
    ran(profile_model, *options, "--resume")
    assert answers(out) == fresh
