"""The fingerprint changes with what changes memory, and with nothing else."""

import pytest

from configs import config_from_dict
from profiler.memory_fingerprint import memory_fingerprint

BASE = {
    "experiment_name": "x",
    "model": {"net_type": "swinir", "img_size": 64, "depths": [2], "num_heads": [2], "embed_dim": 12},
}


def fingerprint(**changes):
    raw = {name: dict(section) if isinstance(section, dict) else section for name, section in BASE.items()}
    for path, value in changes.items():
        section, *keys = path.split("__")
        place = raw.setdefault(section, {})
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    return memory_fingerprint(config_from_dict(raw))


@pytest.mark.parametrize(
    "change",
    [
        {"model__embed_dim": 24},
        {"model__drop_path_rate": 0.0},
        {"model__img_size": 96},
        {"data__patch_size": 32},
        {"data__val_batch_size": 2},
        {"training__loss__components__frequency__weight": 0},
        {"training__optimizer__type": "sgd"},
        {"training__gradient__clip_norm": 1.0},
        {"training__gradient_checkpointing": "full"},
        {"training__ema_decay": 0},
        {"training__accumulate": 2},
        {"system__mixed_precision": "bf16"},
        {"system__compile": True},
        {"system__channels_last": True},
    ],
)  # fmt: skip
def test_what_changes_memory_changes_it(change):
    assert fingerprint(**change) != fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"data__batch_size": 16},
        {"data__batch_size": "auto"},
        {"data__num_workers": 7},
        {"paths__root": "elsewhere"},
        {"model__init_type": "xavier_normal"},
        {"training__loss__components__frequency__weight": 0.5},
        {"training__optimizer__lr": 1.0},
        {"training__total_steps": 7},
        {"system__seed": 7},
    ],
)
def test_what_does_not_leaves_it(change):
    assert fingerprint(**change) == fingerprint()


def test_true_is_bf16_and_three_accumulated_need_what_two_need():
    assert fingerprint(system__mixed_precision=True) == fingerprint(system__mixed_precision="bf16")
    assert fingerprint(training__accumulate=3) == fingerprint(training__accumulate=2)
