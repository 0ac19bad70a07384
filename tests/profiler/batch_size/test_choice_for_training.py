"""`"batch_size": "auto"`: what is taken from a profile, and what is refused, each with the command that mends it."""

import copy
import json
from pathlib import Path

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.batch_size.choice_for_training import (
    BatchSizeError,
    Device,
    choose_batch_size,
    with_choice,
)
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from tests.made_profiles import ORIGINAL, recommended
from tests.training_profiles import memory_model, profile

GIB = 2**30
CONFIG = config_from_dict(
    {
        "experiment_name": "x",
        "data": {"batch_size": "auto"},
        "model": {"net_type": "swinir", "img_size": 64, "depths": [2], "num_heads": [2], "embed_dim": 12},
    }
)


def entry(name, gibibytes, batch_size, accumulate=1, target_batch=None, devices=1):
    nothing = {"failure": "nothing_fits", "accumulate": None, "global_batch": None}
    found = {"accumulate": accumulate, "target_batch": target_batch, "devices": devices, "reason": "a reason"}
    return recommended(name, gibibytes, batch_size, 1000, **(found if batch_size else found | nothing))


def recommending(*entries):
    """`recommendation` of a profile."""
    return {"inference": None, "training": list(entries)}


PROFILE = profile(
    model=memory_model(memory_fingerprint=memory_fingerprint(CONFIG), loss="parts"),
    recommendation=recommending(entry("RTX 3060", 12, 10), entry("RTX 3090", 23, 21), entry("Other", 23, 20)),
)


def without(key):
    return {name: value for name, value in entry("T4", 12, 8).items() if name != key}


RTX_3090 = Device("RTX 3090", 24 * GIB)


def choose(tmp_path, profile=PROFILE, device=RTX_3090, config=CONFIG, **options):
    file = tmp_path / "profile.json"
    if profile is not None:
        file.write_text(profile if isinstance(profile, str) else json.dumps(profile))
    options = {"config_file": Path("config.json"), "loss": "parts", **options}
    return choose_batch_size(config, file, device, **options)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (Device("RTX 3090", 24 * GIB), 21),  # the very card
        (Device("Other", 24 * GIB), 20),
        (Device("A100", 80 * GIB), 21),  # the largest that has no more memory, the first of two
        (Device("RTX 3090", 16 * GIB), 10),  # with less memory than was promised it is not that card
        (Device("NVIDIA GeForce RTX 3090", 24 * GIB), 21),  # as CUDA calls it
        (Device("Other", 23 * GIB), 20),  # the very memory
        (Device("Other", 23 * GIB - 1), 10),
    ],
)
def test_the_card_itself_or_the_largest_with_no_more_memory(tmp_path, device, expected):
    assert choose(tmp_path, device=device).batch_size == expected


def test_what_one_device_holds_is_not_what_each_of_several_does(tmp_path):
    """Each of several holds gradient buckets besides; fewer devices than were asked about hold no more."""
    with pytest.raises(BatchSizeError, match=r"recommends for 1 devices and this run has 2 \(--devices\)"):
        choose(tmp_path, device=Device("RTX 3090", 24 * GIB, count=2))
    profile = copy.deepcopy(PROFILE)
    profile["recommendation"]["training"] = [entry("RTX 3090", 23, 16, devices=2)]
    for count in (1, 2, 4):
        assert choose(tmp_path, profile, Device("RTX 3090", 24 * GIB, count)).batch_size == 16


def test_the_config_gets_integers(tmp_path):
    profile = copy.deepcopy(PROFILE)
    profile["recommendation"]["training"] = [entry("RTX 3090", 23, 16, 4, 64)]
    chosen = choose(tmp_path, profile)
    config = with_choice(CONFIG, chosen)
    assert (config.data.batch_size, config.training.accumulate) == (16, 4)
    assert "16 x 4 accumulated x 1 devices = 64 per step" in chosen.message


def test_a_profile_made_with_accumulation_covers_a_run_without_but_not_the_other_way_round(tmp_path):
    accumulating = CONFIG.model_copy(
        update={"training": CONFIG.training.model_copy(update={"accumulate": 4})}
    )
    profile = copy.deepcopy(PROFILE)
    with pytest.raises(BatchSizeError, match="without accumulation, and the config has 4"):
        choose(tmp_path, config=accumulating)
    profile["memory_model"].update(memory_fingerprint=memory_fingerprint(accumulating), accumulate=4)
    assert choose(tmp_path, profile, config=accumulating).accumulation == 4
    assert choose(tmp_path, profile).accumulation == 1


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (None, "there is no profile"),
        ("{", "is not valid JSON"),
        ("[]", "is not a profile"),
        ("{}", "is not a profile"),
        ('{"schema_version": 3, "config": {}}', "update the program"),
        ({"schema_version": 1, "config": {}}, "is damaged .*config"),
        (ORIGINAL, "says nothing about the memory of training"),
        (
            {**PROFILE, "recommendation": recommending({**entry("T4", 12, 8), "budget": {}})},
            "is damaged .*recommendation.training.0.budget.name: Field required",
        ),
        ({**PROFILE, "recommendation": recommending(1)}, "is damaged"),
        (
            {**PROFILE, "recommendation": recommending(without("target_batch"))},
            "recommendation.training.0.target_batch: Field required",
        ),
        (
            {**PROFILE, "recommendation": recommending(entry("T4", 12, "8"))},
            "training.0.batch_size: Input should be a valid integer",
        ),
        ({**PROFILE, "recommendation": [1]}, "is damaged"),
        ({**PROFILE, "memory_model": None}, "says nothing"),
        ({**PROFILE, "recommendation": None}, "says nothing"),
    ],
)
def test_what_is_no_such_profile_names_the_command_that_makes_one(tmp_path, profile, words):
    with pytest.raises(BatchSizeError, match=words) as caught:
        choose(tmp_path, profile)
    assert "profile_model.py --config config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_less_memory_than_any_card_of_the_profile_is_refused(tmp_path):
    with pytest.raises(BatchSizeError, match=r"at least 12,288 MiB and T4 has 8,192.*--gpu-memory 8192MiB"):
        choose(tmp_path, device=Device("T4", 8 * GIB))
    with pytest.raises(BatchSizeError):
        choose(tmp_path, device=Device("T4", 8 * GIB), allow_stale=True)


def test_another_network_loss_or_number_of_devices_is_stale_unless_allowed(tmp_path):
    other = config_from_dict({**CONFIG.model_dump(mode="json"), "system": {"mixed_precision": "bf16"}})
    with pytest.raises(BatchSizeError, match=r"another network, patch, precision.*--allow-stale-profile"):
        choose(tmp_path, config=other)
    assert choose(tmp_path, config=other, allow_stale=True).batch_size == 21
    with pytest.raises(BatchSizeError, match="with the loss parts, and here it is parts and VGG19"):
        choose(tmp_path, loss="parts and VGG19")
    profile = copy.deepcopy(PROFILE)
    profile["recommendation"]["training"] = [entry("RTX 3090", 23, 16, 1, 32, devices=2)]
    with pytest.raises(BatchSizeError, match="2 devices and this run has 1"):
        choose(tmp_path, profile)


def test_where_nothing_fits_the_reason_is_told(tmp_path):
    profile = copy.deepcopy(PROFILE)
    profile["recommendation"]["training"] = [entry("RTX 3090", 23, None)]
    with pytest.raises(BatchSizeError, match="nothing fits RTX 3090: a reason"):
        choose(tmp_path, profile)
